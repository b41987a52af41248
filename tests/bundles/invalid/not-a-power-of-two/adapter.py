from models.tt_transformers.tt.generator_vllm import LlamaForCausalLM


class Model(LlamaForCausalLM):
    pass
