import numpy as np
import pytest
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.outputs import LogprobsLists

from vllm_tt.sampling.combine import GrammarOnDevice, TokenOutOfRange, check_grammar, in_vocabulary, together
from vllm_tt.sampling.host import SampledRows


def tokens(*values):
    return np.array(values, np.int32)


def test_tokens_of_the_vocabulary_are_taken_as_they_are():
    assert in_vocabulary(tokens(0, 99), 100).tolist() == [0, 99]


@pytest.mark.parametrize("wrong", [-1, 100, 2**31 - 1])
def test_a_token_that_is_none_ends_here(wrong):
    with pytest.raises(TokenOutOfRange) as error:
        in_vocabulary(tokens(3, wrong), 100)
    assert str(error.value) == f"The device sampled token {wrong}; the vocabulary has the tokens 0 to 99."


def test_the_hosts_rows_take_their_places():
    device = SampledRows(
        tokens=tokens(1, 2, 3),
        logprobs=LogprobsLists(np.array([[1], [2], [3]]), np.array([[-1.0], [-2.0], [-3.0]]), np.array([1, 1, 1])),
    )
    host = SampledRows(
        tokens=tokens(9), logprobs=LogprobsLists(np.array([[9, 8]]), np.array([[-0.5, -0.7]]), np.array([1]))
    )
    both = together(device, host, np.array([1]), np.array([0, 2]))
    assert both.tokens.tolist() == [1, 9, 3]
    assert both.logprobs.logprob_token_ids.tolist() == [[1, 0], [9, 8], [3, 0]]


def test_a_grammar_never_meets_a_row_of_the_device():
    grammar = GrammarOutput(["a", "b"], np.zeros((2, 4), np.int32))
    check_grammar(None, {"a"})
    check_grammar(grammar, {"c"})
    with pytest.raises(GrammarOnDevice) as error:
        check_grammar(grammar, {"b", "c", "a"})
    assert str(error.value) == (
        "The device sampled for a, b, whose output is structured: only the host applies a grammar."
    )
