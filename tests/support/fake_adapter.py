"""The one fake of the project: an adapter that records its calls and checks them against the call table."""

from typing import ClassVar

import torch

from vllm_tt.contract import CALLS

TABLE = {call.method: call for call in CALLS}


class FakeAdapter:
    """Logits by script: row i's next token is ``script(tokens, position)``; every call is kept in ``calls``."""

    model_capabilities: ClassVar[dict] = {"supports_chunked_prefill": True, "supports_prefix_caching": True}

    def __init__(self, vocab_size=32, script=lambda last, position: (last + 1) % 32):
        self.vocab_size = vocab_size
        self.script = script
        self.calls = []

    def called(self, method):
        return [kwargs for name, kwargs in self.calls if name == method]

    def allocate_kv_cache(self, shape, dtype, num_layers):
        self.calls.append(("allocate_kv_cache", {"shape": shape, "dtype": dtype, "num_layers": num_layers}))
        return "kv cache"

    def warmup_model_prefill(self, **kwargs):
        self._record("warmup_model_prefill", kwargs)

    def warmup_model_decode(self, **kwargs):
        self._record("warmup_model_decode", kwargs)

    def prefill_forward(self, **kwargs):
        self._record("prefill_forward", kwargs)
        ends = kwargs["prompt_lens"].tolist()
        lasts = [int(kwargs["tokens"][row, end - 1]) for row, end in enumerate(ends)]
        return self._logits([(last, end - 1) for last, end in zip(lasts, ends, strict=True)])

    def decode_forward(self, **kwargs):
        self._record("decode_forward", kwargs)
        tokens, positions = kwargs["tokens"].view(-1).tolist(), kwargs["start_pos"].tolist()
        return self._logits(list(zip(tokens, positions, strict=True)))

    def _record(self, method, kwargs):
        call = TABLE[method]
        unknown = set(kwargs) - set(call.always) - set(call.sometimes)
        missing = set(call.always) - set(kwargs)
        assert not unknown, f"{method} was sent {unknown}, which the call table does not list"
        assert not missing, f"{method} was not sent {missing}"
        self.calls.append((method, kwargs))

    def _logits(self, rows):
        logits = torch.zeros(len(rows), 1, self.vocab_size)
        for row, (last, position) in enumerate(rows):
            logits[row, 0, self.script(last, position)] = 1.0
        return logits
