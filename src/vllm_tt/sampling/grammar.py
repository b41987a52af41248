"""Masks the logits of structured-output rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from vllm.v1.core.sched.output import GrammarOutput

__all__ = ["apply_grammar"]


def apply_grammar(logits: torch.Tensor, req_ids: Sequence[str], grammar: GrammarOutput) -> None:
    """Forbid, in place, every token that a row's grammar does not allow.

    logits: float32 [rows, V], rows in the order of ``req_ids``. The grammar's mask has a bit
    for each token (int32 words, lowest bit first), and a row for each of its own request ids.
    Columns past the mask's vocabulary are padding of the model's head: forbidden.
    """
    table = logits.numpy()
    row_of = {req_id: row for row, req_id in enumerate(req_ids)}
    for req_id, words in zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=True):
        if (row := row_of.get(req_id)) is not None:
            forbidden = np.unpackbits(~np.ascontiguousarray(words).view(np.uint8), bitorder="little").view(np.bool_)
            masked = table[row, : forbidden.size]
            np.copyto(masked, -np.inf, where=forbidden[: masked.size])
            table[row, forbidden.size :] = -np.inf
