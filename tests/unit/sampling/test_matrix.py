"""Every sampling control alone and with every other, at any row of mixed batches: as vLLM samples the row alone."""

from itertools import combinations
from zlib import crc32

import numpy as np
import pytest
import torch
from probe_config import probe_config
from sampling_reference import Reference
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.core.sched.output import GrammarOutput

from vllm_tt.batch.requests import RequestState
from vllm_tt.sampling.host import HostSampler

VOCAB, PADDED, STEPS, ROWS = 1000, 1024, 4, 16
LIKELY = [900, 7, 320, 512, 64, 999, 0, 33]
"""These lead at every step, in this order, so that what concerns them decides something."""
STRUCTURED = {"structured_outputs": StructuredOutputsParams(choice=["a"])}
CONTROLS = {
    "temperature": {"temperature": 0.7},
    "top_k": {"top_k": 5},
    "top_k_1": {"top_k": 1},
    "top_k_300": {"top_k": 300},
    "top_p": {"top_p": 0.8},
    "top_p_small": {"top_p": 0.05},
    "min_p": {"min_p": 0.1},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.6},
    "repetition": {"repetition_penalty": 1.3},
    "logit_bias": {"logit_bias": {7: 3.0, 64: 4.5, 900: -100.0}},
    "bad_words": {"bad_words": ["x"]},
    "allowed": {"allowed_token_ids": [3, 7, 320, 512, 998]},
    "min_tokens": {"min_tokens": 2, "stop_token_ids": [900, 7]},
    "logprobs_0": {"logprobs": 0},
    "logprobs_1": {"logprobs": 1},
    "logprobs_5": {"logprobs": 5},
    "logprobs_20": {"logprobs": 20},
    "seed": {"seed": 77},
    "grammar": STRUCTURED,
}
RANDOM = {"temperature", "top_k", "top_k_1", "top_k_300", "top_p", "top_p_small", "min_p", "seed"}
SAME = [{"top_k", "top_k_1", "top_k_300"}, {"top_p", "top_p_small"}]
SAME += [{"logprobs_0", "logprobs_1", "logprobs_5", "logprobs_20"}]
CASES = [(), *((name,) for name in CONTROLS)]
CASES += [pair for pair in combinations(CONTROLS, 2) if not any(set(pair) <= one for one in SAME)]
NAMES = ["+".join(case) or "plain" for case in CASES]


def params_of(case):
    asked = {key: value for name in case for key, value in CONTROLS[name].items()}
    if RANDOM.isdisjoint(case):
        asked["temperature"] = 0.0
    else:
        asked.setdefault("seed", crc32("+".join(case).encode()))
    params = SamplingParams(**asked)
    if "bad_words" in case:
        params._bad_words_token_ids = [[900], [7, 320], [320, 7]]  # vLLM's tokenizer fills it in
    return params


def prompt_of(case):
    return [900, 5, 5, 320, crc32(repr(case).encode()) % VOCAB]


def logits_of(case, step, dtype):
    made = torch.Generator().manual_seed(crc32(f"{case} {step}".encode()))
    logits = torch.randn(PADDED, generator=made) * 2.0
    # In sixteenths, which bfloat16 keeps apart: which of two equal tokens is in a nucleus, vLLM's sort leaves open.
    sixteenths = 160 - 3 * torch.arange(len(LIKELY)) + torch.randint(3, (len(LIKELY),), generator=made)
    logits[LIKELY] = sixteenths / 16
    logits[VOCAB:] = 50.0  # padding of the model's head
    return logits.to(dtype)


def allowed_of(case, step):
    made = np.random.default_rng(crc32(f"{case} {step} grammar".encode()))
    return {7, 64, 33, *made.choice(VOCAB, 200, replace=False).tolist()} if "grammar" in case else None


def alone(config, case, dtype):
    reference = Reference(config, params_of(case), prompt_of(case))
    return [reference.sample(logits_of(case, step, dtype), allowed_of(case, step)) for step in range(STEPS)]


def grammar_output(rows, step):
    """Masks of the structured rows, in another order than the rows', and of a request that is not in the step."""
    masks = {name: allowed_of(case, step) for name, case in rows[::-1] if "grammar" in case}
    if not masks:
        return None
    masks["elsewhere"] = {1}
    bits = np.zeros((len(masks), -(-VOCAB // 32) * 32), dtype=np.uint8)
    for row, allowed in enumerate(masks.values()):
        bits[row, list(allowed)] = 1
    return GrammarOutput(list(masks), np.packbits(bits, axis=1, bitorder="little").view(np.int32))


def together(config, dtype, *, compat):
    """Every case in one server: at each step, each is in one batch, with other neighbours in another order."""
    sampler = HostSampler(config, compat=compat)
    shuffle = np.random.default_rng(5)
    states = {}
    for name, case in zip(NAMES, CASES, strict=True):
        params = params_of(case)
        states[name] = RequestState(
            req_id=name,
            prompt_token_ids=prompt_of(case),
            sampling_params=params,
            generator=None if params.seed is None else torch.Generator().manual_seed(params.seed),
            slot=len(states),
        )
    results = {name: [] for name in NAMES}
    for step in range(STEPS):
        order = shuffle.permutation(len(CASES)).tolist()
        for first in range(0, len(order), ROWS):
            rows = [(NAMES[i], CASES[i]) for i in order[first : first + ROWS]]
            logits = torch.stack([logits_of(case, step, dtype) for _, case in rows]).unsqueeze(1)
            before = logits.clone()
            out = sampler.sample(logits[:, -1, :], [states[name] for name, _ in rows], grammar_output(rows, step))
            assert torch.equal(logits, before)
            for row, (name, _) in enumerate(rows):
                token = int(out.tokens[row])
                states[name].output_token_ids.append(token)
                results[name].append((token, out.logprobs and out.logprobs.slice_request(row, 1)))
    return results


SERVERS = [
    (torch.float32, "raw_logprobs", False),
    (torch.bfloat16, "raw_logits", False),
    (torch.float32, "processed_logprobs", False),
    (torch.bfloat16, "raw_logprobs", True),
]
"""What the adapter returns, what the operator asks logprobs to be (with processed ones, vLLM draws in its own way), and
whether vLLM's sampler is used as it is.
"""


@pytest.fixture(scope="module", params=SERVERS, ids=[f"{mode}{' compat' * compat}" for _, mode, compat in SERVERS])
def both(request, tmp_path_factory):
    dtype, mode, compat = request.param
    config = probe_config(tmp_path_factory.mktemp("model"), vocab_size=VOCAB, rows=ROWS, logprobs_mode=mode)
    expected = {name: alone(config, case, dtype) for name, case in zip(NAMES, CASES, strict=True)}
    return together(config, dtype, compat=compat), expected


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_sampled_as_vllm_samples_it_alone(both, name):
    found, expected = both[0][name], both[1][name]
    assert [token for token, _ in found] == [token for token, _ in expected]
    for (_, got), (_, wanted) in zip(found, expected, strict=True):
        if wanted is not None:
            check_logprobs(got, wanted)


def check_logprobs(got, wanted):
    """Equal in all that was asked for; of tokens that tie, vLLM may name another."""
    columns = wanted.logprobs.shape[1]
    assert got.logprobs[0, :columns].tolist() == wanted.logprobs[0].tolist()
    assert got.sampled_token_ranks.tolist() == wanted.sampled_token_ranks.tolist()
    values = wanted.logprobs[0, 1:]
    untied = np.array([(values == value).sum() == 1 for value in values[:-1]] + [False] * (columns > 1), dtype=bool)
    assert (got.logprob_token_ids[0, 1:columns][untied] == wanted.logprob_token_ids[0, 1:][untied]).all()
    assert got.logprob_token_ids[0, 0] == wanted.logprob_token_ids[0, 0]


@pytest.mark.parametrize("name", [name for name in CONTROLS if not name.startswith("logprobs")])
def test_the_matrix_is_not_vacuous(both, name):
    """Alone, a control gives other tokens than plain rows get, unless it leaves but the likeliest to draw from."""
    plain = [int(logits_of((name,), step, torch.float32)[:VOCAB].argmax()) for step in range(STEPS)]
    assert (plain == [token for token, _ in both[1][name]]) == (name in ("top_k_1", "top_p_small"))
