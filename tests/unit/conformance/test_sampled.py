import pytest
import torch

from vllm_tt.conformance.sampled import Answer, Ask, BadReturn, params_of, shown
from vllm_tt.contract import DeviceSamplingParams

ROWS, VOCAB = 4, 32
PLAIN = Ask.greedy(ROWS)
LOGPROBS = Ask(params=params_of(ROWS, {1: {"enable_log_probs": True, "num_logprobs": 2}}))
LOGITS = Ask(params=DeviceSamplingParams.greedy(ROWS), logits_rows=[2, 0])
TOKENS = torch.tensor([1, 2, 3, 4])


def answer(value, ask):
    return Answer.of(value, "decode_forward", ask, VOCAB)


@pytest.mark.parametrize("value", [TOKENS, TOKENS[:, None].int(), (TOKENS, None), (TOKENS,)])
def test_forms_of_tokens(value):
    found = answer(value, PLAIN)
    assert (found.tokens, found.logprobs, found.indices, len(found.logits)) == ([1, 2, 3, 4], None, None, 0)


@pytest.mark.parametrize("logprobs", [torch.zeros(ROWS), torch.zeros(ROWS, 1)])
def test_forms_of_the_chosen_tokens_logprobs(logprobs):
    found = answer((TOKENS, logprobs), LOGPROBS)
    assert (found.logprobs.shape, found.indices) == ((ROWS,), None)


def test_logprobs_of_the_likeliest_tokens():
    found = answer((TOKENS, (torch.zeros(ROWS, 3), torch.ones(ROWS, 3, dtype=torch.int32))), LOGPROBS)
    assert (found.logprobs.shape, found.indices.shape) == ((ROWS, 3), (ROWS, 3))


def test_logits_of_rows_may_be_padded():
    found = answer((TOKENS, None, torch.zeros(2, VOCAB + 8)), LOGITS)
    assert found.logits.shape == (2, VOCAB)


NO_TOKENS = "tokens [4] or [4, 1]"
NO_LOGITS = "(tokens, logprobs or None, logits [2, 32]) when it is sent 2 logits_rows"
NO_LOGPROBS = (
    "(tokens, logprobs) where a row has enable_log_probs, logprobs [4] or [4, 1], or a pair of logprobs and indices, "
    "[4, K] each"
)


@pytest.mark.parametrize(
    ("value", "ask", "expected", "found"),
    [
        (torch.zeros(4, 1, 32), PLAIN, NO_TOKENS, "float32 [4, 1, 32]"),
        (torch.zeros(4), PLAIN, NO_TOKENS, "float32 [4]"),
        (torch.zeros(3, dtype=torch.int32), PLAIN, NO_TOKENS, "int32 [3]"),
        ((), PLAIN, NO_TOKENS, "None"),
        (TOKENS, LOGITS, NO_LOGITS, "(int64 [4])"),
        ((TOKENS, torch.zeros(2, 32)), LOGITS, NO_LOGITS, "(int64 [4], float32 [2, 32])"),
        ((TOKENS, None, torch.zeros(4, 32)), LOGITS, NO_LOGITS, "float32 [4, 32]"),
        ((TOKENS, None, torch.zeros(2, 31)), LOGITS, NO_LOGITS, "float32 [2, 31]"),
        (TOKENS, LOGPROBS, NO_LOGPROBS, "None"),
        ((TOKENS, torch.zeros(4, 2)), LOGPROBS, NO_LOGPROBS, "float32 [4, 2]"),
        (
            (TOKENS, (torch.zeros(4, 2), torch.zeros(4, 3))),
            LOGPROBS,
            NO_LOGPROBS,
            "(float32 [4, 2], float32 [4, 3])",
        ),
    ],
)
def test_what_is_no_answer(value, ask, expected, found):
    with pytest.raises(BadReturn) as caught:
        answer(value, ask)
    assert str(caught.value) == f"decode_forward() must return {expected}, got {found}."


def test_parameters_of_single_rows():
    params = params_of(3, {1: {"temperature": 0.5, "seed": 9}})
    assert (params.temperature, params.seed, params.top_k) == ([0.0, 0.5, 0.0], [None, 9, None], [1, 1, 1])
    assert params_of(3, {}) == DeviceSamplingParams.greedy(3)


def test_keywords_are_sent_where_something_is_asked():
    assert PLAIN.keywords() == {"sampling_params": DeviceSamplingParams.greedy(ROWS)}
    assert LOGITS.keywords()["logits_rows"] == [2, 0]
    words = Ask(params=PLAIN.params, prompts={0: [5, 6], 3: [7]}, outputs={}).keywords()
    assert words["prompt_tokens"].tolist() == [[5, 6], [-1, -1], [-1, -1], [7, -1]]
    assert words["output_tokens"].tolist() == [[-1]] * ROWS
    assert str(words["prompt_tokens"].dtype) == "torch.int32"


def test_values_are_shown_by_type():
    assert shown((TOKENS, None, ["x"])) == "(int64 [4], None, a list)"
