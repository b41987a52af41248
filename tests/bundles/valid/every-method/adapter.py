class Model:
    model_capabilities = {
        "supports_prefix_caching": True,
        "supports_chunked_prefill": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "max_device_top_k": 32,
        "fabric_config": {"topology": "ring"},
    }

    @classmethod
    def get_max_tokens_all_users(cls, model_name, num_devices, tt_data_parallel, max_model_len, max_num_seqs):
        return max_model_len * max_num_seqs

    @classmethod
    def get_kv_cache_spec(cls, vllm_config):
        return None

    @classmethod
    def initialize_vllm_model(
        cls, hf_config, mesh_device, max_batch_size, max_seq_len, tt_data_parallel=1, optimizations=None
    ):
        return cls()

    def allocate_kv_cache_per_layer(self, specs):
        return specs

    def warmup_model_prefill(self, enable_trace, kv_cache, can_sample_on_device):
        pass

    def warmup_model_decode(self, enable_trace, kv_cache, can_sample_on_device, max_batch_size, num_blocks):
        pass

    def prefill_forward(
        self,
        tokens,
        page_table,
        kv_cache,
        enable_trace,
        prompt_lens,
        start_pos,
        empty_slots,
        sampling_params=None,
        page_tables_per_layer=None,
    ):
        return tokens[:, start_pos]

    def decode_forward(
        self,
        tokens,
        page_table,
        kv_cache,
        start_pos,
        enable_trace,
        read_from_device,
        sampling_params=None,
        reset_batch=False,
        prompt_tokens=None,
        output_tokens=None,
        page_tables_per_layer=None,
    ):
        return tokens

    def read_decode_output(self, out, async_read=False):
        return out, []

    def process_decode_output_host(self, out, is_tokens=False):
        return out
