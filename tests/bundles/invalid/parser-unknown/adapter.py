class Model:
    @classmethod
    def initialize_vllm_model(cls, hf_config, mesh_device, max_batch_size, **options):
        return cls()

    def allocate_kv_cache(self, shape, dtype, num_layers):
        return []

    def warmup_model_prefill(self, **step):
        pass

    def warmup_model_decode(self, **step):
        pass

    def prefill_forward(self, tokens, page_table, start_pos, **step):
        return self.run(tokens, page_table, start_pos)

    def decode_forward(self, tokens, page_table, start_pos, **step):
        return self.run(tokens, page_table, start_pos)
