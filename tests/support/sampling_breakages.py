"""As `breakages`: adapters whose sampling on the device is wrong in one way each."""

from dataclasses import replace
from typing import ClassVar

import torch


class Sampling:
    """Changes what a call asks the device for."""

    def asked(self, kwargs):
        return kwargs

    def prefill_forward(self, **kwargs):
        return super().prefill_forward(**self.asked(kwargs) if "sampling_params" in kwargs else kwargs)

    def decode_forward(self, **kwargs):
        return super().decode_forward(**self.asked(kwargs) if "sampling_params" in kwargs else kwargs)


def with_params(kwargs, **columns):
    return kwargs | {"sampling_params": replace(kwargs["sampling_params"], **columns)}


class SamplesTheSecondBest:
    def prefill_forward(self, *, sampling_params=None, logits_rows=None, **kwargs):
        logits = super().prefill_forward(**kwargs)
        return logits[:, -1].topk(2).indices[:, 1] if sampling_params else logits


class ForgetsTheTokenItSampled(Sampling):
    def asked(self, kwargs):
        return kwargs | {"reload_inputs": True} if "reload_inputs" in kwargs else kwargs


class DrawsForRowsBesideOneThatDraws(Sampling):
    def asked(self, kwargs):
        params = kwargs["sampling_params"]
        rows = len(params.top_k)
        return with_params(kwargs, temperature=[max(params.temperature)] * rows, top_k=[max(params.top_k)] * rows)


class DrawsFromTheWholeVocabulary(Sampling):
    model_capabilities: ClassVar[dict] = {"supports_sample_on_device": True, "max_device_top_k": 4}

    def asked(self, kwargs):
        return with_params(kwargs, top_k=[256 if k > 1 else 1 for k in kwargs["sampling_params"].top_k])


class HasRoomForOneResult:
    """A step that is not read yet is overwritten by the next."""

    def decode_forward(self, **kwargs):
        self.newest = super().decode_forward(**kwargs)
        return self.newest

    def process_decode_output_host(self, out, is_tokens):
        return super().process_decode_output_host(self.newest, is_tokens)


class LoadsInputsOnceAPrompt(Sampling):
    loaded = False

    def prefill_forward(self, **kwargs):
        self.loaded = False
        return super().prefill_forward(**kwargs)

    def asked(self, kwargs):
        if not kwargs.get("reload_inputs"):
            return kwargs
        before, self.loaded = self.loaded, True
        return kwargs | {"reload_inputs": not before}


class NeverLoadsNewPages(Sampling):
    def asked(self, kwargs):
        return kwargs | {"reload_page_table": False} if "reload_page_table" in kwargs else kwargs


class NeverTakesARowOut(Sampling):
    """A slot at position -1 goes on decoding where it was."""

    held = None

    def prefill_forward(self, **kwargs):
        self.held = None
        return super().prefill_forward(**kwargs)

    def asked(self, kwargs):
        if kwargs.get("reload_inputs"):
            now = kwargs["start_pos"], kwargs["page_table"]
            if self.held is not None:
                out = (now[0] < 0) & (self.held[0] >= 0)
                now = torch.where(out, self.held[0], now[0]), torch.where(out[:, None], self.held[1], now[1])
            self.held = now
            return kwargs | {"start_pos": now[0], "page_table": now[1]}
        return kwargs


class GivesLogitsInTheOrderOfSlots(Sampling):
    def asked(self, kwargs):
        return kwargs | {"logits_rows": sorted(kwargs["logits_rows"])} if kwargs.get("logits_rows") else kwargs


class SamplesNothingBesideLogits:
    def decode_forward(self, *, logits_rows=None, **kwargs):
        if not logits_rows:
            return super().decode_forward(**kwargs)
        tokens, logprobs, logits = super().decode_forward(logits_rows=logits_rows, **kwargs)
        return tokens * 0, logprobs, logits


class GivesLogitsOnlyToPrefills:
    def decode_forward(self, *, logits_rows=None, **kwargs):
        return super().decode_forward(**kwargs)


class SeedsBySlot(Sampling):
    def asked(self, kwargs):
        seeds = enumerate(kwargs["sampling_params"].seed)
        return with_params(kwargs, seed=[None if seed is None else (seed + row) % 2**32 for row, seed in seeds])


class SeedsByStep(Sampling):
    steps = 0

    def asked(self, kwargs):
        self.steps += 1
        seeds = kwargs["sampling_params"].seed
        return with_params(kwargs, seed=[None if seed is None else (seed + self.steps) % 2**32 for seed in seeds])


class SeedsPrefillsDifferently:
    def prefill_forward(self, **kwargs):
        if "sampling_params" in kwargs:
            seeds = kwargs["sampling_params"].seed
            kwargs = with_params(kwargs, seed=[None if seed is None else seed // 2 for seed in seeds])
        return super().prefill_forward(**kwargs)


class DrawsWithoutSeeds(Sampling):
    def asked(self, kwargs):
        return with_params(kwargs, seed=[None] * len(kwargs["sampling_params"].seed))


class HasOneSeedForAll(Sampling):
    def asked(self, kwargs):
        return with_params(kwargs, seed=[7] * len(kwargs["sampling_params"].seed))


class IgnoresPenalties(Sampling):
    def asked(self, kwargs):
        rows = len(kwargs["sampling_params"].seed)
        nothing = {name: [0.0] * rows for name in ("presence_penalty", "frequency_penalty")}
        return with_params(kwargs, repetition_penalty=[1.0] * rows, **nothing)


class PenalisesEveryRow(Sampling):
    def asked(self, kwargs):
        params = kwargs["sampling_params"]
        lowest = [min(params.presence_penalty)] * len(params.seed)
        return with_params(kwargs, presence_penalty=lowest)


class ForgetsItsPromptInPrefill:
    def prefill_forward(self, **kwargs):
        if "sampling_params" in kwargs:
            kwargs = with_params(kwargs, repetition_penalty=[1.0] * len(kwargs["empty_slots"]))
        return super().prefill_forward(**kwargs)


class CountsThePromptAsOutput(Sampling):
    def asked(self, kwargs):
        if "output_tokens" not in kwargs:
            return kwargs
        return kwargs | {"output_tokens": torch.cat([kwargs["prompt_tokens"], kwargs["output_tokens"]], dim=1)}


class CountsEachTokenOnce(Sampling):
    """Frequency is taken for presence."""

    def asked(self, kwargs):
        params = kwargs["sampling_params"]
        both = [one + other for one, other in zip(params.presence_penalty, params.frequency_penalty, strict=True)]
        return with_params(kwargs, presence_penalty=both, frequency_penalty=[0.0] * len(both))


class CountsOnlyWhatTheHostKnows(Sampling):
    def asked(self, kwargs):
        again = {"reload_sampling_params": True, "reset_sampling_state": True}
        return kwargs | again if "reload_inputs" in kwargs else kwargs


class CountsOnAfterAReset(Sampling):
    """The first reset after a prefill is the only one."""

    resets = 0

    def prefill_forward(self, **kwargs):
        self.resets = 0
        return super().prefill_forward(**kwargs)

    def asked(self, kwargs):
        self.resets += bool(kwargs.get("reset_sampling_state"))
        return kwargs | {"reset_sampling_state": self.resets == 1} if self.resets > 1 else kwargs


class GivesLogprobsAfterTemperature:
    def decode_forward(self, **kwargs):
        return self.flatter(super().decode_forward(**kwargs), kwargs.get("sampling_params"))

    def flatter(self, out, params):
        if not params or not any(params.enable_log_probs) or not isinstance(out, tuple):
            return out
        tokens, (logprobs, indices) = out
        divisors = torch.tensor([one or 1.0 for one in params.temperature])
        return tokens, (logprobs / divisors[:, None], indices)


class GivesTheChosenLogprobAlone:
    def prefill_forward(self, **kwargs):
        out = super().prefill_forward(**kwargs)
        return (out[0], out[1][0][:, 0]) if isinstance(out, tuple) else out


class GivesLogprobsUnsorted:
    def prefill_forward(self, **kwargs):
        out = super().prefill_forward(**kwargs)
        return (out[0], tuple(part.flip(1) for part in out[1])) if isinstance(out, tuple) else out


class GivesTheNextLikeliestTokens:
    def prefill_forward(self, **kwargs):
        out = super().prefill_forward(**kwargs)
        return (out[0], tuple(part[:, 1:] for part in out[1])) if isinstance(out, tuple) else out


class GivesNoLogprobs(Sampling):
    def asked(self, kwargs):
        return with_params(kwargs, enable_log_probs=[False] * len(kwargs["sampling_params"].seed))


SAMPLING_BREAKAGES = {
    SamplesTheSecondBest: ("device-sampling", "1 token in slot 0"),
    ForgetsTheTokenItSampled: ("device-sampling", "1 token in slot 0, 2 decode steps"),
    DrawsForRowsBesideOneThatDraws: ("device-sampling", "1 token in slot 0 and 1 token in slot 1"),
    DrawsFromTheWholeVocabulary: ("device-sampling", None),
    HasRoomForOneResult: ("async-overlap", None),
    LoadsInputsOnceAPrompt: ("reloads", None),
    NeverLoadsNewPages: ("reloads", None),
    NeverTakesARowOut: ("reloads", None),
    GivesLogitsInTheOrderOfSlots: ("row-logits", None),
    SamplesNothingBesideLogits: ("row-logits", None),
    GivesLogitsOnlyToPrefills: ("row-logits", "1 token in slot 0, 1 decode step"),
    SeedsBySlot: ("seeds", None),
    SeedsByStep: ("seeds", None),
    SeedsPrefillsDifferently: ("seeds", None),
    DrawsWithoutSeeds: ("seeds", None),
    HasOneSeedForAll: ("seeds", None),
    IgnoresPenalties: ("penalties", None),
    PenalisesEveryRow: ("penalties", None),
    ForgetsItsPromptInPrefill: ("penalties", None),
    CountsThePromptAsOutput: ("penalties", None),
    CountsEachTokenOnce: ("penalties", None),
    CountsOnlyWhatTheHostKnows: ("penalties", None),
    CountsOnAfterAReset: ("penalties", None),
    GivesLogprobsAfterTemperature: ("logprobs", None),
    GivesTheChosenLogprobAlone: ("logprobs", "1 token in slot 0"),
    GivesLogprobsUnsorted: ("logprobs", "1 token in slot 0"),
    GivesTheNextLikeliestTokens: ("logprobs", "1 token in slot 0"),
    GivesNoLogprobs: ("logprobs", "1 token in slot 0"),
}
"""Each with the row that must fail, and the smallest case where it is known."""
