"""The one fake of the project: an adapter that records its calls and checks them against the call table."""

from dataclasses import fields

import torch

from vllm_tt.contract import CALLS, DeviceSamplingParams

TABLE = {call.method: call for call in CALLS}
CACHES = {"supports_chunked_prefill": True, "supports_prefix_caching": True}
RELOADS = ("reload_inputs", "reload_page_table", "reload_sampling_params", "reset_sampling_state")


class Handle:
    """A decode that was submitted with ``read_from_device=False``."""

    def __init__(self, value, is_tokens):
        self.value = value
        self.is_tokens = is_tokens
        self.reading = False
        self.taken = False


class FakeAdapter:
    """The next token after ``last`` at ``position`` is ``script(last, position)``; every call is kept in ``calls``.

    Sampled calls return tokens; like a device the fake then goes on from its own tokens and positions until it is
    told to load the host's. Tokens of rows in ``logits_rows`` are off by one: nobody may use them.
    """

    model_capabilities = CACHES

    def __init__(
        self,
        vocab_size=32,
        script=lambda last, position: (last + 1) % 32,
        *,
        capabilities=None,
        contract=None,
        make_events=list,
    ):
        """``capabilities``: what is declared beside the caches; ``make_events()``: the events of a readback."""
        self.vocab_size = vocab_size
        self.script = script
        self.model_capabilities = type(self).model_capabilities | (capabilities or {})
        if contract is not None:
            self.decode_input_update_contract = contract
        self.make_events = make_events
        self.calls = []
        self.resident = None
        """[(token, position)] by slot, as a device-sampled decode left them."""

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
        return self._result([(last, end - 1) for last, end in zip(lasts, ends, strict=True)], kwargs)

    def decode_forward(self, **kwargs):
        self._record("decode_forward", kwargs)
        rows = self._inputs(kwargs)
        out = self._result(rows, kwargs)
        sampled = "sampling_params" in kwargs
        self.resident = None
        if sampled:
            tokens = out[0] if isinstance(out, tuple) else out
            self.resident = [
                (int(token), position + 1 if position >= 0 else -1)
                for token, (_, position) in zip(tokens, rows, strict=True)
            ]
        return out if kwargs["read_from_device"] else Handle(out, sampled)

    def read_decode_output(self, out, **kwargs):
        self._record("read_decode_output", {"out": out} | kwargs)
        assert kwargs["async_read"] is True
        assert not out.reading, "a readback was started twice"
        out.reading = True
        return out, self.make_events()

    def process_decode_output_host(self, out, **kwargs):
        self._record("process_decode_output_host", {"out": out} | kwargs)
        if not isinstance(out, Handle):
            return out
        assert kwargs["is_tokens"] is out.is_tokens
        assert not out.taken, "a decode was read twice"
        out.taken = True
        return out.value

    def _record(self, method, kwargs):
        call = TABLE[method]
        unknown = set(kwargs) - set(call.always) - set(call.sometimes)
        missing = set(call.always) - set(kwargs)
        assert not unknown, f"{method} was sent {unknown}, which the call table does not list"
        assert not missing, f"{method} was not sent {missing}"
        if method == "decode_forward":
            self._check_commands(kwargs)
        self.calls.append((method, kwargs))

    def _check_commands(self, kwargs):
        explicit = getattr(self, "decode_input_update_contract", None) == 1
        legacy = ("reset_batch",) if "sampling_params" in kwargs else ()
        sent = {name: value for name, value in kwargs.items() if name in (*RELOADS, "reset_batch")}
        assert set(sent) == set(RELOADS if explicit else legacy), f"commands {sent}"
        assert all(type(value) is bool for value in sent.values()), f"commands {sent}"
        if explicit:
            assert not (sent["reload_inputs"] and sent["reload_page_table"]), "both reloads"
            assert sent["reload_sampling_params"] or not sent["reset_sampling_state"], "a reset without parameters"

    def _inputs(self, kwargs):
        """The host's tokens and positions where they are loaded, else the device's own."""
        explicit = getattr(self, "decode_input_update_contract", None) == 1
        if kwargs.get("reload_inputs" if explicit else "reset_batch", True):
            return list(zip(kwargs["tokens"].view(-1).tolist(), kwargs["start_pos"].tolist(), strict=True))
        assert self.resident is not None, "there is nothing to go on from"
        return self.resident

    def _result(self, rows, kwargs):
        """``rows``: (last token, its position)."""
        chosen = [self.script(last, position) for last, position in rows]
        logits = torch.zeros(len(rows), 1, self.vocab_size)
        for row, token in enumerate(chosen):
            logits[row, 0, token] = 1.0
        params = kwargs.get("sampling_params")
        if params is None:
            return logits
        assert self.model_capabilities.get("supports_sample_on_device"), "sampling is not declared"
        sizes = {one.name: len(getattr(params, one.name)) for one in fields(DeviceSamplingParams)}
        assert set(sizes.values()) == {len(rows)}, f"parameters of {sizes} rows, not {len(rows)}"
        logprobs = self._logprobs(logits[:, 0].log_softmax(-1), chosen, params)
        if (asked := kwargs.get("logits_rows")) is not None:
            tokens = [(token + 1) % self.vocab_size if row in asked else token for row, token in enumerate(chosen)]
            return torch.tensor(tokens, dtype=torch.int32), logprobs, logits[asked, 0]
        tokens = torch.tensor(chosen, dtype=torch.int32)
        return tokens if logprobs is None else (tokens, logprobs)

    def _logprobs(self, values, chosen, params):
        """The chosen tokens' where no row asks for more, else the likeliest tokens' and their ids."""
        if not any(params.enable_log_probs):
            return None
        if count := max(params.num_logprobs):
            return tuple(part[:, :count] for part in values.sort(dim=-1, descending=True, stable=True))
        return values[torch.arange(len(chosen)), chosen]
