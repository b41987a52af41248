import numpy as np
import pytest
import torch

from vllm_tt.sampling.argmax import likeliest_tokens

INF, NAN = float("inf"), float("nan")
NEGATIVE_NAN = np.array([0xFFC00000], dtype=np.uint32).view(np.float32)[0].item()
ROWS = {
    "positive": [1.0, 3.0, 2.0, 3.0],
    "negative": [-5.0, -1.0, -3.0, -1.0],
    "negative and nan": [-5.0, -1.0, NEGATIVE_NAN, -1.0],
    "negative and zero": [-5.0, -0.0, -1e-30, -0.0],
    "signed zeros tie": [-0.0, 0.0, -1.0, -2.0],
    "tie at zero": [-1.0, 0.0, -0.0, -2.0],
    "tiny": [1e-30, 2e-30, -1.0, 1e-35],
    "forbidden": [-INF, -2.0, -INF, -INF],
    "nothing allowed": [-INF, -INF, -INF, -INF],
    "infinite": [1.0, INF, 2.0, INF],
    "nan": [1.0, 2.0, NAN, 3.0],
    "negative nan": [1.0, 2.0, NEGATIVE_NAN, 3.0],
    "nan and infinity": [INF, NAN, 2.0, NAN],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_it_is_torchs_argmax_and_knows_rows_without_a_finite_maximum(dtype):
    logits = torch.tensor(list(ROWS.values())).to(dtype)
    tokens, dead = likeliest_tokens(logits, range(len(logits)))
    assert tokens.tolist() == logits.float().argmax(dim=1).tolist()
    assert tokens.dtype == np.int32
    without = ("negative and nan", "nothing allowed", "infinite", "nan", "negative nan", "nan and infinity")
    assert [list(ROWS)[row] for row in dead] == list(without)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_of_a_view_in_any_order(dtype):
    """As adapters return them: the last position of several, more columns than the vocabulary has."""
    whole = torch.randn(8, 3, 1024, generator=torch.Generator().manual_seed(2)).to(dtype)
    view = whole[::2, -1, :1000]
    rows = [3, 0, 2]
    assert likeliest_tokens(view, rows)[0].tolist() == view[rows].float().argmax(dim=1).tolist()
    transposed = whole[:, -1, :].T.contiguous().T
    assert likeliest_tokens(transposed, rows)[0].tolist() == transposed[rows].float().argmax(dim=1).tolist()
