import sys
import time
from types import SimpleNamespace

import pytest
import torch

MS = 1_000_000


def test_a_step_begins_when_the_one_before_has_ended(no_op_device):
    device = no_op_device.Device(step_ms=4)
    began = time.perf_counter_ns()
    first, second = device.submit(), device.submit()
    assert second - first == 4 * MS
    assert first >= began + 4 * MS
    device.wait(second)
    assert time.perf_counter_ns() >= second
    device.wait(first)  # has passed
    idle_until = time.perf_counter_ns()
    assert device.submit() >= idle_until + 4 * MS
    assert device.busy_ns == 12 * MS


def test_a_wait_ends_on_time_and_says_what_it_took(no_op_device):
    device = no_op_device.Device(step_ms=2)
    late = []
    for _ in range(20):
        end = device.submit()
        device.wait(end)
        late.append(time.perf_counter_ns() - end)
    assert min(late) < MS // 10
    assert 0 < device.spun_ns < 20 * 2 * MS


def test_without_device_time_nothing_waits(no_op_device):
    device = no_op_device.Device()
    for _ in range(1000):
        device.wait(device.submit())
    device.drain()
    assert (device.busy_ns, device.spun_ns) == (0, 0)


@pytest.fixture
def adapter(no_op, monkeypatch):
    """Four slots, a vocabulary of 64, events that are names."""
    record_event = lambda mesh, queue: f"event of {mesh}"  # noqa: E731
    monkeypatch.setitem(sys.modules, "ttnn", SimpleNamespace(record_event=record_event))
    return no_op.NoOpForCausalLM(64, "mesh", 4)


def decode(adapter, **more):
    given = dict.fromkeys(("tokens", "page_table", "kv_cache", "start_pos"))
    return adapter.decode_forward(**given, enable_trace=False, **{"read_from_device": True} | more)


def test_logits_prefer_one_token(adapter, no_op):
    logits = decode(adapter)
    assert logits.shape == (4, 1, 64)
    assert logits.argmax(-1).flatten().tolist() == [no_op.TOKEN] * 4
    shares = logits[0, 0].softmax(-1).sort(descending=True).values
    assert shares[:8].sum() > 0.8 > shares[0]


def test_device_sampling_gives_what_was_asked_for(adapter, no_op):
    plain = SimpleNamespace(enable_log_probs=[False] * 4)
    with_logprobs = SimpleNamespace(enable_log_probs=[False, True, False, False])
    assert decode(adapter, sampling_params=plain).tolist() == [no_op.TOKEN] * 4
    tokens, logprobs = decode(adapter, sampling_params=with_logprobs)
    assert (tokens.shape, logprobs.shape) == ((4,), (4,))
    tokens, nothing, logits = decode(adapter, sampling_params=plain, logits_rows=[3, 1])
    assert (tokens.shape, nothing, logits.shape) == ((4,), None, (2, 64))


def test_a_decode_is_read_when_the_device_is_ready(adapter):
    adapter.device.step_ns = 5 * MS
    step = decode(adapter, read_from_device=False)
    out, events = adapter.read_decode_output(step, async_read=True)
    assert events == ["event of mesh"]
    assert time.perf_counter_ns() < step.end
    read = adapter.process_decode_output_host(out, is_tokens=False)
    assert time.perf_counter_ns() >= step.end
    assert torch.equal(adapter.process_decode_output_host(read, is_tokens=False), read)


def test_a_prefill_runs_after_the_decodes_before_it(adapter):
    adapter.device.step_ns = 5 * MS
    end = decode(adapter, read_from_device=False).end
    given = dict.fromkeys(("tokens", "page_table", "kv_cache", "prompt_lens", "start_pos"))
    out = adapter.prefill_forward(**given, enable_trace=False, empty_slots=[2, 0])
    assert time.perf_counter_ns() >= end
    assert out.shape == (2, 1, 64)
    assert adapter.device.busy_ns == 5 * MS
