import pytest
import torch

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.sampling.device import DeviceSampling
from vllm_tt.worker.outputs import UnexpectedOutput, parse_logits, parse_tokens


def sampling(rows=2, logits_rows=(), logprobs=False):
    params = DeviceSamplingParams.greedy(rows)
    params.enable_log_probs[0] = logprobs
    return DeviceSampling(params=params, logits_rows=logits_rows)


@pytest.mark.parametrize("shape", [(2, 1, 5), (2, 3, 5)])
def test_logits_of_the_last_token(shape):
    logits = torch.rand(shape)
    assert torch.equal(parse_logits(logits, "A.f()", 2).logits, logits[:, -1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_tokens(shape, dtype):
    output = parse_tokens(torch.tensor([3, 4], dtype=dtype).view(shape), "A.f()", 2, sampling())
    assert (output.tokens.tolist(), output.tokens.dtype.name, output.logprobs, output.logits) == (
        [3, 4],
        "int32",
        None,
        None,
    )


TOKENS = torch.tensor([3, 4])


@pytest.mark.parametrize(
    ("found", "logprobs", "indices"),
    [
        (torch.tensor([-1.0, -2.0]), [-1.0, -2.0], None),
        (torch.tensor([[-1.0], [-2.0]], dtype=torch.bfloat16), [-1.0, -2.0], None),
        ((torch.tensor([[-1.0], [-2.0]]), torch.tensor([[3], [4]])), [[-1.0], [-2.0]], [[3], [4]]),
    ],
)
def test_logprobs(found, logprobs, indices):
    output = parse_tokens((TOKENS, found), "A.f()", 2, sampling(logprobs=True))
    assert output.logprobs.tolist() == logprobs
    assert (output.indices is None) if indices is None else (output.indices.tolist() == indices)


@pytest.mark.parametrize("logprobs", [None, torch.zeros(2)])
def test_row_logits(logprobs):
    logits = torch.rand(1, 5)
    output = parse_tokens((TOKENS, logprobs, logits), "A.f()", 2, sampling(logits_rows=(1,)))
    assert torch.equal(output.logits, logits)


INTEGERS = "integer tokens of 2 rows, [2] or [2, 1], for device sampling"
ROW_LOGITS = "(tokens, logprobs or None, logits [1, vocabulary]) when it is sent logits_rows of 1 rows"
LOGPROBS = (
    "(tokens, logprobs) for rows with enable_log_probs: logprobs [2] or [2, 1] of the chosen tokens, "
    "or (logprobs, indices) of the likeliest, [2, K] each"
)


@pytest.mark.parametrize(
    ("out", "asked", "expected", "found"),
    [
        (torch.zeros(2, 1, 5), sampling(), INTEGERS, "a float32 tensor of shape [2, 1, 5]"),
        (torch.zeros(2), sampling(), INTEGERS, "a float32 tensor of shape [2]"),
        (torch.zeros(3, dtype=torch.int32), sampling(), INTEGERS, "a int32 tensor of shape [3]"),
        (None, sampling(), INTEGERS, "None"),
        ((), sampling(), INTEGERS, "None"),
        ([3, 4], sampling(), INTEGERS, "list"),
        (TOKENS, sampling(logits_rows=(1,)), ROW_LOGITS, "(a int64 tensor of shape [2])"),
        (
            (TOKENS, None, torch.zeros(2, 5)),
            sampling(logits_rows=(1,)),
            ROW_LOGITS,
            "a float32 tensor of shape [2, 5]",
        ),
        (TOKENS, sampling(logprobs=True), LOGPROBS, "None"),
        ((TOKENS, torch.zeros(3)), sampling(logprobs=True), LOGPROBS, "a float32 tensor of shape [3]"),
        (
            (TOKENS, (torch.zeros(2, 3), torch.zeros(2, 4))),
            sampling(logprobs=True),
            LOGPROBS,
            "(a float32 tensor of shape [2, 3], a float32 tensor of shape [2, 4])",
        ),
    ],
)
def test_another_form_is_an_error_that_says_what_was_expected(out, asked, expected, found):
    with pytest.raises(UnexpectedOutput) as error:
        parse_tokens(out, "A.decode_forward()", 2, asked)
    assert str(error.value) == f"A.decode_forward() must return {expected}; got {found}."
