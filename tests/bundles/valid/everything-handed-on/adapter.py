class Model:
    model_capabilities = {"supports_prefix_caching": True, "supports_sample_on_device": True}

    @classmethod
    def initialize_vllm_model(cls, *args, **kwargs):
        return cls()

    def allocate_kv_cache(self, *args, **kwargs):
        return []

    def warmup_model_prefill(self, *args, **kwargs):
        pass

    def warmup_model_decode(self, *args, **kwargs):
        pass

    def prefill_forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)

    def decode_forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)
