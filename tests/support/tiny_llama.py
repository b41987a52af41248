"""A Llama checkpoint of random weights that loads in no time, its vocabulary and layers as small as they may be."""

import json


def write_checkpoint(folder, *, vocab_size=256, layers=2, heads=4, kv_heads=2, head_dim=32, seed=5):
    """A folder with configuration and float32 weights; returns it."""
    import torch
    from safetensors.torch import save_file

    hidden, inner = heads * head_dim, 2 * heads * head_dim
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    shapes = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (kv_heads * head_dim, hidden),
        "self_attn.v_proj": (kv_heads * head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    named = {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in shapes.items()}
    named |= {"model.embed_tokens.weight": (vocab_size, hidden), "lm_head.weight": (vocab_size, hidden)}
    named |= {"model.norm.weight": (hidden,)}
    random = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=random) * (shape[-1] ** -0.5 * 2 if len(shape) > 1 else 0.1)
        + (len(shape) == 1)
        for name, shape in named.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder
