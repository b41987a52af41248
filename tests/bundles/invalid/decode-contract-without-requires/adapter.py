class Model:
    decode_input_update_contract = 1

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

    def decode_forward(
        self, *, tokens, page_table, kv_cache, start_pos, enable_trace, read_from_device, reload_inputs,
        reload_page_table, reload_sampling_params=False
    ):
        return self.run(tokens, page_table, start_pos)
