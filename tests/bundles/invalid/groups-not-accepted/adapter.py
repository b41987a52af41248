class Model:
    @classmethod
    def initialize_vllm_model(cls, hf_config, mesh_device, max_batch_size, **options):
        return cls()

    def allocate_kv_cache_per_layer(self, specs):
        return []

    @classmethod
    def get_kv_cache_spec(cls, vllm_config):
        return None

    def warmup_model_prefill(self, **step):
        pass

    def warmup_model_decode(self, **step):
        pass

    def prefill_forward(self, *, tokens, page_table, kv_cache, enable_trace, prompt_lens, start_pos, empty_slots):
        return tokens

    def decode_forward(self, **step):
        return step
