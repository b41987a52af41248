import numpy as np
import pytest
from vllm.sampling_params import SamplingParams

from vllm_tt.batch.requests import RequestState
from vllm_tt.batch.sampling_rows import SamplingRows
from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.sampling.device import DeviceSampling, Histories, device_params


def rows_of(**by_slot):
    rows = SamplingRows(4, vocab_size=100)
    for slot, params in by_slot.items():
        rows.bind(int(slot[1:]), params, 2)
    return rows


def params_of(rows, size, *pairs):
    index, slots = np.array(pairs, np.int64).reshape(-1, 2).T
    return device_params(rows, size, index, slots)


def test_gaps_are_neutral():
    assert params_of(rows_of(), 3) == DeviceSamplingParams.greedy(3)


def test_each_row_has_its_own_parameters():
    rows = rows_of(
        s0=SamplingParams(temperature=0, presence_penalty=0.5, logprobs=0),
        s3=SamplingParams(temperature=0.5, top_p=0.25, frequency_penalty=-1.0, logprobs=4),
        s2=SamplingParams(temperature=2.0, top_k=7, repetition_penalty=1.25, seed=9),
    )
    assert params_of(rows, 4, (0, 0), (2, 2), (3, 3)) == DeviceSamplingParams(
        temperature=[0.0, 0.0, 2.0, 0.5],
        top_k=[1, 1, 7, 100],
        top_p=[1.0, 1.0, 1.0, 0.25],
        presence_penalty=[0.5, 0.0, 0.0, 0.0],
        frequency_penalty=[0.0, 0.0, 0.0, -1.0],
        repetition_penalty=[1.0, 1.0, 1.25, 1.0],
        seed=[None, None, 9, None],
        enable_log_probs=[True, False, False, True],
        num_logprobs=[0, 0, 0, 4],
    )


def test_the_likeliest_tokens_logprob_is_the_chosen_ones_where_that_is_the_same():
    rows = rows_of(
        s0=SamplingParams(temperature=0, logprobs=1),
        s1=SamplingParams(temperature=0, logprobs=1, presence_penalty=0.5),
        s2=SamplingParams(temperature=1, logprobs=1),
        s3=SamplingParams(temperature=0, logprobs=2),
    )
    assert params_of(rows, 4, (0, 0), (1, 1), (2, 2), (3, 3)).num_logprobs == [0, 1, 1, 2]


def test_rows_of_a_prefill_are_not_slots():
    rows = rows_of(s3=SamplingParams(temperature=0.5), s1=SamplingParams(temperature=0.25))
    assert params_of(rows, 3, (0, 3), (2, 1)).temperature == [0.5, 0.0, 0.25]


def test_a_row_that_is_left_out_is_neutral():
    rows = rows_of(s1=SamplingParams(temperature=1, top_k=99, logprobs=20, seed=3))
    assert params_of(rows, 4) == DeviceSamplingParams.greedy(4)


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1])
def test_a_seed_that_fits_is_the_devices_seed(seed):
    assert params_of(rows_of(s0=SamplingParams(temperature=1, seed=seed)), 1, (0, 0)).seed == [seed]


def test_wider_seeds_stay_apart():
    seeds = [5, 2**32 + 5, 2**31, -2, 2**63 - 1, -(2**63)]
    narrow = [params_of(rows_of(s0=SamplingParams(temperature=1, seed=one)), 1, (0, 0)).seed[0] for one in seeds]
    assert len(set(narrow)) == len(seeds)
    assert all(0 <= one < 2**32 for one in narrow)


def state(req_id, prompt, output):
    return RequestState(
        req_id=req_id,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(),
        generator=None,
        output_token_ids=output,
    )


def test_histories_are_by_slot():
    histories = Histories.of([None, state("a", [1, 2, 3], [4]), None, state("b", [5], [])])
    assert histories.prompt_tokens.tolist() == [[-1] * 3, [1, 2, 3], [-1] * 3, [5, -1, -1]]
    assert histories.output_tokens.tolist() == [[-1], [4], [-1], [-1]]


def test_only_what_is_needed_is_sent():
    params = DeviceSamplingParams.greedy(2)
    assert DeviceSampling(params=params).keywords() == {"sampling_params": params}
    histories = Histories.of([state("a", [1], [2]), None])
    sent = DeviceSampling(params=params, logits_rows=(1,), histories=histories).keywords()
    assert sent == {
        "sampling_params": params,
        "logits_rows": [1],
        "prompt_tokens": histories.prompt_tokens,
        "output_tokens": histories.output_tokens,
    }
