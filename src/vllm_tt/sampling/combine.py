"""One step's tokens, from the device and from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vllm_tt.errors import TTError
from vllm_tt.sampling.host import SampledRows
from vllm_tt.sampling.logprobs import merge

if TYPE_CHECKING:
    import numpy.typing as npt
    from vllm.v1.core.sched.output import GrammarOutput

__all__ = ["GrammarOnDevice", "TokenOutOfRange", "check_grammar", "in_vocabulary", "together"]


class TokenOutOfRange(TTError):
    """The device sampled token {token}; the vocabulary has the tokens 0 to {last}."""


class GrammarOnDevice(TTError):
    """The device sampled for {requests}, whose output is structured: only the host applies a grammar."""


def check_grammar(grammar: GrammarOutput | None, on_device: set[str]) -> None:
    """Raise where a grammar would go unapplied."""
    if grammar is not None and (missed := on_device.intersection(grammar.structured_output_request_ids)):
        raise GrammarOnDevice(requests=", ".join(sorted(missed)))


def in_vocabulary(tokens: npt.NDArray[np.int32], vocab_size: int) -> npt.NDArray[np.int32]:
    """``tokens`` as they are; raise where one is none."""
    # Negative ones are the largest without their sign.
    wrong = tokens.view(np.uint32) >= vocab_size
    if wrong.any():
        raise TokenOutOfRange(token=int(tokens[wrong][0]), last=vocab_size - 1)
    return tokens


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
