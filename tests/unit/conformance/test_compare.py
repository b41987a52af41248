import pytest
import torch

from vllm_tt.conformance.compare import difference, unlike

LOGITS = torch.linspace(-3, 5, 64)


def test_equal_up_to_an_offset():
    assert difference(LOGITS + 7, LOGITS) < 1e-6
    assert unlike(LOGITS + 7, LOGITS, 1e-3) is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (LOGITS * 1.5, "the logits differ by 0.5 of their spread (limit 0.1); both choose token 63"),
        (LOGITS.flip(0), "the logits differ by 2 of their spread (limit 0.1); token 0, not 63"),
        (LOGITS * float("nan"), "the logits are not finite"),
    ],
)
def test_what_is_different_is_said(found, text):
    assert unlike(found, LOGITS, 0.1) == text


def test_a_reference_that_is_no_number_proves_nothing():
    assert unlike(LOGITS, LOGITS * float("inf"), 0.1) == "the logits to compare with are not finite"


def test_flat_logits_have_no_spread_to_compare_with():
    assert difference(torch.ones(4), torch.zeros(4)) == 0
    assert unlike(torch.tensor([0.0, 0, 0, 9]), torch.zeros(4), 0.1) is not None
