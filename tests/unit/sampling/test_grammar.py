import numpy as np
import torch
from vllm.v1.core.sched.output import GrammarOutput

from vllm_tt.sampling.grammar import apply_grammar


def bitmask(width, allowed):
    words = np.zeros((len(allowed), -(-width // 32)), dtype=np.int32)
    for row, tokens in enumerate(allowed):
        for token in tokens:
            words.view(np.uint32)[row, token // 32] |= np.uint32(1) << np.uint32(token % 32)
    return words


def test_rows_are_masked_by_request_id_and_others_are_left_alone():
    logits = torch.arange(80, dtype=torch.float32).repeat(3, 1)
    grammar = GrammarOutput(["c", "a"], bitmask(80, [{0, 31}, {32, 79}]))
    apply_grammar(logits, ["a", "b", "c"], grammar)
    finite = [torch.isfinite(row).nonzero().flatten().tolist() for row in logits]
    assert finite == [[32, 79], list(range(80)), [0, 31]]


def test_a_padded_vocabulary_is_forbidden():
    logits = torch.zeros(1, 100)
    apply_grammar(logits, ["a"], GrammarOutput(["a"], bitmask(64, [{5, 63}])))
    assert torch.isfinite(logits[0]).nonzero().flatten().tolist() == [5, 63]


def test_a_grammar_of_a_request_that_is_not_in_the_step_is_skipped():
    logits = torch.zeros(1, 64)
    apply_grammar(logits, ["a"], GrammarOutput(["gone"], bitmask(64, [{1}])))
    assert torch.isfinite(logits).all()
