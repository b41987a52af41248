import pytest
import torch

from vllm_tt.conformance.scores import drawn_outside, not_the_likeliest, slack

LOGITS = torch.tensor([0.0, 5.0, 4.9, -4.9, -5.0])


def test_slack_is_a_part_of_the_largest_distance_from_the_mean():
    assert slack(LOGITS, 0.1) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("token", "tolerance", "fault"),
    [
        (1, 0.0, None),
        (2, 0.1, None),
        (2, 0.001, "sampled token 2; the host's logits are highest for token 1"),
        (5, 0.1, "sampled token 5, which is not in the vocabulary"),
        (-1, 0.1, "sampled token -1, which is not in the vocabulary"),
    ],
)
def test_the_likeliest_token(token, tolerance, fault):
    assert not_the_likeliest(token, LOGITS, tolerance) == fault


@pytest.mark.parametrize(
    ("token", "top_k", "fault"),
    [
        (2, 2, None),
        (0, 2, "drew token 0, which is not among the 2 likeliest"),
        (4, 5, None),
        (5, 5, "sampled token 5, which is not in the vocabulary"),
    ],
)
def test_a_drawn_token(token, top_k, fault):
    assert drawn_outside(token, LOGITS, top_k, 0.01) == fault
