"""One step's tokens, from the device and from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.errors import TTError
from vllm_tt.sampling.host import SampledRows
from vllm_tt.sampling.logprobs import chosen_logprobs, likeliest_logprobs, merge

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.outputs import LogprobsLists

    from vllm_tt.batch.sampling_rows import SamplingRows

__all__ = ["GrammarOnDevice", "TokenOutOfRange", "check_grammar", "device_rows", "together"]


class TokenOutOfRange(TTError):
    """The device sampled token {token}; the vocabulary has the tokens 0 to {last}."""


class GrammarOnDevice(TTError):
    """The device sampled for {requests}, whose output is structured: only the host applies a grammar."""


def check_grammar(grammar: GrammarOutput | None, on_device: set[str]) -> None:
    """Raise where a grammar would go unapplied."""
    if grammar is not None and (missed := on_device.intersection(grammar.structured_output_request_ids)):
        raise GrammarOnDevice(requests=", ".join(sorted(missed)))


def device_rows(
    tokens: npt.NDArray[np.int32],
    logprobs: npt.NDArray[np.float32] | None,
    indices: npt.NDArray[np.int32] | None,
    likeliest: npt.NDArray[np.bool_],
    rows: SamplingRows,
) -> SampledRows:
    """What the device sampled, all arrays by row; ``likeliest`` rows took the likeliest token."""
    if ((tokens < 0) | (tokens >= rows.vocab_size)).any():
        wrong = tokens[(tokens < 0) | (tokens >= rows.vocab_size)]
        raise TokenOutOfRange(token=int(wrong[0]), last=rows.vocab_size - 1)
    found: LogprobsLists | None = None
    if logprobs is not None and indices is not None:
        found = likeliest_logprobs(tokens, logprobs, indices)
    elif logprobs is not None:
        found = chosen_logprobs(tokens, logprobs, likeliest)
    return SampledRows(tokens=tokens, logprobs=found)


def together(
    device: SampledRows,
    host: SampledRows,
    host_index: npt.NDArray[np.int64],
    device_index: npt.NDArray[np.int64],
) -> SampledRows:
    """A split step: ``device`` has all rows, of which ``host_index`` are the host's and ``device_index`` its own."""
    tokens = device.tokens.copy()
    tokens[host_index] = host.tokens
    own = None
    if device.logprobs is not None:
        own = type(device.logprobs)(
            device.logprobs.logprob_token_ids[device_index],
            device.logprobs.logprobs[device_index],
            device.logprobs.sampled_token_ranks[device_index],
        )
    return SampledRows(tokens=tokens, logprobs=merge(len(tokens), [(device_index, own), (host_index, host.logprobs)]))
