"""Explanations of TB4 and TB5: the adapter class and what it declares."""

from __future__ import annotations

from vllm_tt.bundle.explain.explanation import table

__all__ = ["ADAPTER"]

ADAPTER = table(
    (
        "TB401",
        (
            "The worker calls the method, and neither the class nor its bases in the bundle have it. A base outside "
            "the bundle may: then this is a note."
        ),
        "class Model without decode_forward",
        "Define it. 'tt-bundle new --template ttnn' shows every method with its arguments.",
    ),
    (
        "TB402",
        "The worker sends a keyword that the method does not take: a TypeError on the first request.",
        "def prefill_forward(self, tokens, page_table, kv_cache, prompt_lens)",
        "Take the keyword, or **kwargs for those that do not matter.",
    ),
    (
        "TB403",
        "The method requires a parameter that no call passes, or that only some calls pass.",
        "def warmup_model_prefill(self, kv_cache, enable_trace, can_sample_on_device, greedy_only)",
        "Give the parameter a default.",
    ),
    (
        "TB404",
        "The method is called on the class, before there is an instance.",
        "def initialize_vllm_model(self, hf_config, ...)",
        "Decorate it with @classmethod or @staticmethod.",
    ),
    (
        "TB405",
        "The method is called plainly and its result is used at once: no await, no iteration, no attribute.",
        "async def decode_forward(self, ...)",
        "Make it a plain method that returns its result.",
    ),
    (
        "TB406",
        "Some arguments are passed by position, others by name; the signature does not allow it.",
        "def initialize_vllm_model(cls, *, hf_config, mesh_device, max_batch_size, ...)",
        "Take the first arguments by position, as docs/bundle-format.md lists them.",
    ),
    (
        "TB407",
        "allocate_kv_cache makes one cache of one shape; with get_kv_cache_spec layers may differ.",
        "get_kv_cache_spec and allocate_kv_cache, without allocate_kv_cache_per_layer",
        "Define allocate_kv_cache_per_layer(specs).",
    ),
    (
        "TB408",
        "get_max_tokens_all_users sizes the KV cache: it returns the number of tokens of all users together.",
        'return "131072"',
        "Return a positive integer.",
    ),
    (
        "TB409",
        (
            "vLLM has no model of this architecture and would look at the adapter itself. This plugin answers for it; "
            "the upstream one needs vLLM's own methods on the class."
        ),
        'class Novel without embed_input_ids, {"arch": "NovelForCausalLM"}',
        "Nothing, unless the bundle is served by other plugins: then add methods that raise NotImplementedError.",
    ),
    (
        "TB410",
        "decode_input_update_contract says which commands decode_forward takes; 1 is the one that is known.",
        "decode_input_update_contract = 2",
        'Write 1 and "requires": {"vllm-tt": ">=..."}, or leave it out.',
    ),
    (
        "TB411",
        "Images come as pixel_values and image_grid_thw. An adapter that reads 'images' serves as if there were none.",
        "def prefill_forward(self, tokens, ..., images=None)",
        "Take pixel_values and image_grid_thw.",
    ),
    (
        "TB412",
        "The class has abstract methods left: it cannot have instances.",
        "class Model(Base) without Base's abstract embed()",
        "Define them.",
    ),
    (
        "TB501",
        "model_capabilities is read from the class, before there is an instance, and is a dict.",
        'model_capabilities = ["supports_prefix_caching"]',
        'Write model_capabilities = {"supports_prefix_caching": True} in the class body.',
    ),
    (
        "TB502",
        "A capability of the wrong type counts as absent here; elsewhere any non-empty text turns it on.",
        '{"supports_async_decode": "no"}',
        "Write True or False, or the number that is asked for.",
    ),
    (
        "TB503",
        "The worker knows no such capability. A misspelt one is off.",
        '{"supports_prefix_cache": True}',
        "Correct the name, or remove it.",
    ),
    (
        "TB504",
        "With asynchronous decode the worker submits a step and reads it back later through this method.",
        '{"supports_async_decode": True} without read_decode_output',
        "Define read_decode_output(out, async_read=...), or do not declare it.",
    ),
    (
        "TB505",
        "With prefix caching or chunks, a prefill starts at start_pos; one that ignores it gives wrong tokens.",
        '{"supports_prefix_caching": True} and a prefill_forward that never reads start_pos',
        "Honour start_pos, or do not declare it.",
    ),
    (
        "TB506",
        "With device sampling, prefill and decode are sent sampling_params.",
        '{"supports_sample_on_device": True} and def decode_forward(self, tokens, ...) without it',
        "Take sampling_params in both, or do not declare it.",
    ),
)
