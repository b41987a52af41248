import pytest

from vllm_tt.sampling.policy import Reason, Where
from vllm_tt.worker.overlap import Drain, Overlap, overlap
from vllm_tt.worker.reloads import Reload

STEADY = Reload(inputs=False)
DEVICE = Where(device=True)


@pytest.mark.parametrize(
    ("where", "reload", "more", "expected"),
    [
        (DEVICE, STEADY, {}, Overlap(drain=None, ahead=True)),
        (DEVICE, Reload(inputs=False, page_table=True), {}, Overlap(drain=None, ahead=True)),
        (DEVICE, Reload(inputs=True, sampling=True), {}, Overlap(drain=Drain.RELOAD, ahead=True)),
        (DEVICE, STEADY, {"logprobs": True}, Overlap(drain=Drain.LOGPROBS, ahead=False)),
        (DEVICE, STEADY, {"traced": False}, Overlap(drain=Drain.NO_TRACE, ahead=False)),
        (
            Where(device=False, host_rows=(0,)),
            Reload(inputs=True),
            {},
            Overlap(drain=Drain.HOST_SAMPLING, ahead=False),
        ),
        (
            Where(device=True, host_rows=(0,), reasons=(Reason.MIN_P,)),
            STEADY,
            {},
            Overlap(drain=Drain.HOST_SAMPLING, ahead=False),
        ),
    ],
)
def test_a_decode_follows_the_one_before_unless_something_needs_its_tokens(where, reload, more, expected):
    assert overlap(where, reload, **{"logprobs": False, "traced": True} | more) == expected
