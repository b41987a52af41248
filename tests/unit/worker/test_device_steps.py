"""Steps that the device samples, split with the host and run ahead, on a fake adapter."""

import pytest
import torch
from fake_adapter import FakeAdapter
from steps import decode, empty, new_request, prefill
from vllm.sampling_params import SamplingParams

from vllm_tt.batch.rows import Rows
from vllm_tt.config import TTConfig
from vllm_tt.contract import Capabilities
from vllm_tt.sampling.host import SampledRows
from vllm_tt.sampling.logprobs import UNKNOWN_RANK
from vllm_tt.sampling.policy import DeviceLimits
from vllm_tt.worker.forward import Forward, UnreadableDecode
from vllm_tt.worker.model_runner import ModelRunner, RunnerOptions

SAMPLES = {"supports_sample_on_device": True}
SPLITS = SAMPLES | {"supports_row_logits": True}
BIASED = SamplingParams(temperature=0, logit_bias={1: 0.5})
RELOADS = ("reload_inputs", "reload_page_table", "reload_sampling_params", "reset_sampling_state")


class ArgmaxSampler:
    """The host's sampler as the runner sees it."""

    def __init__(self):
        self.asked = []

    def sample(self, logits, states, grammar):
        self.asked.append([state.req_id for state in states])
        return SampledRows(tokens=logits.argmax(-1).int().numpy(), logprobs=None)


class Server:
    """A runner that decodes requests a, b and c in slots 2, 0 and 1, each from a prompt of one token."""

    def __init__(self, capabilities=SAMPLES, *, contract=1, ahead=False, mode="all", params=None, prompts=(4, 10, 20)):
        self.adapter = FakeAdapter(capabilities=capabilities, contract=contract)
        self.host = ArgmaxSampler()
        limits = DeviceLimits.of(
            Capabilities(**capabilities),
            TTConfig(sample_on_device_mode=mode),
            chips_per_lane=1,
            model_type="llama",
            logprobs_mode="raw_logprobs",
            custom_processors=False,
        )
        options = RunnerOptions(limits=limits, capacity=64, run_ahead=ahead, traced=True)
        rows = Rows(4, [2], 32)
        self.runner = ModelRunner(Forward(self.adapter, "kv cache", "all"), rows, self.host, options)
        self.ends = dict.fromkeys("abc", 1)
        new = [
            new_request(name, [token], [page], params=(params or {}).get(name))
            for page, (name, token) in enumerate(zip("abc", prompts, strict=True), 1)
        ]
        self.first = self.run(prefill(*[(name, slot, 0, 1, False) for name, slot in self.slots("abc")], new=new))

    def slots(self, names):
        return [(name, {"a": 2, "b": 0, "c": 1}[name]) for name in names]

    def run(self, output):
        """What vLLM gets for a step: tokens by request, or an output to wait for."""
        assert self.runner.execute(output) is None
        return self.runner.sample(None)

    def decode(self, names="abc", **more):
        rows = [(name, slot, self.ends[name], self.ends[name] + 1, False) for name, slot in self.slots(names)]
        for name in names:
            self.ends[name] += 1
        return self.run(decode(*rows, **{"cached": [(name, None) for name in names]} | more))

    def reloads(self):
        return ["".join("ipsr"[i] for i, name in enumerate(RELOADS) if call[name]) for call in self.calls]

    @property
    def calls(self):
        return self.adapter.called("decode_forward")

    @property
    def drains(self):
        return self.runner.counters.snapshot().get("drains", {})


def tokens(result):
    return {name: token for name, [token] in zip(result.req_ids, result.sampled_token_ids, strict=True)}


def test_the_device_samples_prefill_and_decode_and_goes_on_by_itself():
    server = Server()
    assert tokens(server.first) == {"a": 5, "b": 11, "c": 21}
    assert tokens(server.decode()) == {"a": 6, "b": 12, "c": 22}
    assert tokens(server.decode()) == {"a": 7, "b": 13, "c": 23}
    assert (server.host.asked, server.reloads()) == ([], ["isr", ""])
    assert server.calls[1]["sampling_params"] is server.calls[0]["sampling_params"]
    assert all(call["read_from_device"] for call in server.calls)
    assert server.runner.counters.snapshot() == {"steps": {"prefill device": 1, "decode device": 2}}


def test_an_adapter_without_commands_is_told_to_reset_the_batch():
    server = Server(contract=None)
    for expected in (6, 7, 8):
        assert tokens(server.decode())["a"] == expected
    assert [call["reset_batch"] for call in server.calls] == [True, False, False]
    assert tokens(server.decode(cached=[("a", [9]), ("b", None), ("c", None)]))["a"] == 9
    assert server.calls[-1]["reset_batch"]


def test_decode_only_leaves_the_prefill_to_the_host():
    server = Server(mode="decode_only")
    assert server.host.asked == [["a", "b", "c"]]
    assert tokens(server.decode()) == {"a": 6, "b": 12, "c": 22}
    assert "sampling_params" not in server.adapter.called("prefill_forward")[0]
    assert server.runner.counters.snapshot()["host_sampling"] == {"prefill with sample_on_device_mode decode_only": 1}


def test_one_request_sends_the_batch_to_the_host_and_its_end_brings_it_back():
    server = Server(params={"b": BIASED})
    assert tokens(server.decode()) == {"a": 6, "b": 12, "c": 22}
    assert "sampling_params" not in server.calls[0]
    assert tokens(server.decode("ac", released=[0], finished=["b"])) == {"a": 7, "c": 23}
    assert tokens(server.decode("ac")) == {"a": 8, "c": 24}
    assert server.host.asked == [["a", "b", "c"], ["a", "b", "c"]]
    assert server.reloads() == ["i", "isr", ""]
    assert server.runner.counters.snapshot()["host_sampling"] == {"logit_bias": 2}


def test_with_row_logits_only_that_request_is_sampled_on_the_host():
    server = Server(SPLITS, params={"c": BIASED})
    assert tokens(server.first) == {"a": 5, "b": 11, "c": 21}
    assert tokens(server.decode()) == {"a": 6, "b": 12, "c": 22}
    assert server.adapter.called("prefill_forward")[0]["logits_rows"] == [2]
    assert server.calls[0]["logits_rows"] == [1]
    assert server.host.asked == [["c"], ["c"]]
    assert tokens(server.decode()) == {"a": 7, "b": 13, "c": 23}
    # The token of the host is new to the device at every step.
    assert server.reloads() == ["isr", "isr"]


def test_no_logits_are_asked_for_once_that_request_has_ended():
    server = Server(SPLITS, params={"c": BIASED})
    server.decode()
    assert tokens(server.decode("ab", released=[1], finished=["c"])) == {"a": 7, "b": 13}
    assert "logits_rows" not in server.calls[1]
    assert server.reloads() == ["isr", "p"]


def test_intermediate_chunks_beside_the_last_one():
    server = Server(SPLITS)
    chunk = prefill(("d", 3, 0, 2, True), new=[new_request("d", [1, 2, 3], [5])])
    assert server.run(chunk).sampled_token_ids == [[]]
    assert "sampling_params" not in server.adapter.called("prefill_forward")[-1]
    assert tokens(server.decode()) == {"a": 6, "b": 12, "c": 22}


@pytest.mark.parametrize(("asked", "likeliest"), [(0, 1), (3, 3)])
def test_logprobs_of_the_device(asked, likeliest):
    params = SamplingParams(temperature=0, logprobs=asked)
    server = Server(SAMPLES | {"max_device_logprobs": 5}, params={"a": params}, ahead=True)
    result = server.decode()
    assert tokens(result) == {"a": 6, "b": 12, "c": 22}
    row = result.logprobs.slice_request(result.req_id_to_index["a"], 1)
    assert row.logprob_token_ids[0, :2].tolist() == [6, 6]
    expected = torch.nn.functional.one_hot(torch.tensor(6), 32).float().log_softmax(-1)[6]
    assert row.logprobs[0, 0] == pytest.approx(float(expected))
    assert row.logprob_token_ids.shape[1] == 1 + likeliest
    assert row.sampled_token_ranks.tolist() == [1]
    assert server.host.asked == []


def test_the_rank_of_a_penalised_token_is_unknown():
    params = SamplingParams(temperature=0, logprobs=0, presence_penalty=0.5)
    server = Server(SAMPLES | {"max_device_logprobs": 0}, params={"a": params})
    result = server.decode()
    assert result.logprobs.slice_request(result.req_id_to_index["a"], 1).sampled_token_ranks.tolist() == [UNKNOWN_RANK]


def test_penalties_send_the_histories():
    params = SamplingParams(temperature=0, presence_penalty=0.5)
    server = Server(params={"a": params})
    server.decode()
    server.decode()
    sent = server.calls[0]
    assert sent["prompt_tokens"].tolist() == [[10], [20], [4], [-1]]
    assert sent["output_tokens"].tolist() == [[11], [21], [5], [-1]]
    assert sent["sampling_params"].presence_penalty == [0.0, 0.0, 0.5, 0.0]
    # In steady steps the device counts by itself.
    assert server.calls[1]["output_tokens"] is sent["output_tokens"]


def test_steps_run_ahead_until_they_are_asked_for():
    server = Server(ahead=True)
    pending = [server.decode(), server.decode()]
    assert [call["read_from_device"] for call in server.calls] == [False, False]
    assert server.adapter.called("process_decode_output_host") == []
    # The second first: the first is read before it.
    assert [tokens(step.get_output())["a"] for step in reversed(pending)] == [7, 6]
    assert server.runner._rows.requests["a"].output_token_ids == [5, 6, 7]
    assert server.drains == {}


def test_a_row_that_ends_or_gets_a_page_drains_nothing():
    server = Server(ahead=True, params={"b": SamplingParams(temperature=0, max_tokens=2)})
    first = server.decode()
    second = server.decode("ac", cached=[("a", [9]), ("c", None)])
    third = server.decode("ac", released=[0], finished=["b"])
    assert server.reloads() == ["isr", "p", ""]
    assert [tokens(step.get_output())["a"] for step in (first, second, third)] == [6, 7, 8]
    assert server.drains == {}


def test_a_row_that_pauses_drains_what_is_ahead():
    server = Server(ahead=True)
    first = server.decode()
    second = server.decode("ac")
    assert server.reloads() == ["isr", "isr"]
    assert server.calls[1]["start_pos"].tolist() == [-1, 2, 2, -1]
    assert [tokens(step.get_output())["a"] for step in (first, second)] == [6, 7]
    assert server.drains == {"a changed batch": 1}


def test_a_row_that_joins_drains_what_is_ahead_once():
    server = Server(ahead=True)
    first = server.decode()
    joining = server.run(prefill(("d", 3, 0, 1, False), new=[new_request("d", [2], [5])]))
    assert tokens(joining) == {"d": 3}
    assert server.drains == {"prefill": 1}
    server.ends["d"] = 1
    server.slots = lambda names: [(name, {"a": 2, "b": 0, "c": 1, "d": 3}[name]) for name in names]
    second = server.decode("abcd")
    third = server.decode("abcd")
    assert tokens(third.get_output()) == {"a": 8, "b": 14, "c": 24, "d": 5}
    assert tokens(first.get_output())["a"] == 6
    assert tokens(second.get_output())["d"] == 4
    assert server.drains == {"prefill": 1}


def test_a_preempted_request_gets_the_token_that_was_in_flight():
    server = Server(ahead=True)
    first = server.decode()
    second = server.decode("ac", released=[0])
    assert tokens(first.get_output())["b"] == 12
    assert tokens(second.get_output()) == {"a": 7, "c": 23}
    state = server.runner._rows.requests["b"]
    assert state.output_token_ids == [11]
    resumed = prefill(("b", 3, 0, 3, False), cached=[("b", [6])], resumed={"b": [10, 11, 12]})
    assert tokens(server.run(resumed)) == {"b": 13}
    assert state.output_token_ids == [11, 12, 13]


def test_host_sampling_waits_for_the_tokens_before():
    server = Server(ahead=True, params={"b": BIASED})
    # While the biased request pauses, the others run ahead.
    ahead = server.decode("ac")
    assert tokens(server.decode()) == {"a": 7, "b": 12, "c": 23}
    assert tokens(ahead.get_output())["a"] == 6
    assert server.drains == {"sampling on the host": 1}


def test_an_empty_step_leaves_what_is_ahead():
    server = Server(ahead=True)
    step = server.decode()
    server.runner.execute(empty(released=[0, 1, 2], finished=["a", "b", "c"]))
    assert tokens(step.get_output()) == {"a": 6, "b": 12, "c": 22}
    assert server.runner.check() == {"requests": 0, "rows": 0, "pages": 0}


def test_an_adapter_that_cannot_read_back_what_it_left_on_the_device(monkeypatch):
    server = Server(ahead=True)
    monkeypatch.delattr(FakeAdapter, "read_decode_output")
    with pytest.raises(UnreadableDecode) as error:
        server.decode()
    assert str(error.value) == (
        "FakeAdapter declares supports_async_decode and its decode_forward() left its output on the device "
        "(an object of Handle), but it has no read_decode_output() to read it with."
    )
