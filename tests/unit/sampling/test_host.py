import logging

import numpy as np
import pytest
import torch
from probe_config import probe_config
from vllm.config import ReasoningConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.sample.logits_processor import LogitsProcessor

from vllm_tt.sampling.host import HostSampler, NarrowLogits

VOCAB = 1000


def logits_for(rows, seed=1):
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def sample(sampler, logits, states, grammar=None):
    out = sampler.sample(logits, states, grammar)
    for state, token in zip(states, out.tokens.tolist(), strict=True):
        state.output_token_ids.append(token)
    return out.tokens.tolist()


def test_logits_without_some_of_the_vocabulary_are_an_error(make_sampler, state, tmp_path):
    with pytest.raises(NarrowLogits) as error:
        make_sampler().sample(torch.zeros(1, 999), [state("a")], None)
    assert str(error.value) == (
        f"The adapter's logits have 999 columns, the vocabulary of {tmp_path} has 1000 tokens. Columns past the "
        "vocabulary are padding and may be there; none of the vocabulary may be missing."
    )


def test_nobody_who_asks_for_logprobs_gets_none(make_sampler, state):
    sampler = make_sampler()
    states = [state("a"), state("b", SamplingParams(temperature=0.5, seed=1))]
    assert sampler.sample(logits_for(2), states, None).logprobs is None


def test_logprobs_are_found_at_the_rows_that_ask(make_sampler, state):
    states = [state("a"), state("b", SamplingParams(temperature=0, logprobs=2)), state("c"), state("d")]
    out = make_sampler().sample(logits_for(4), states, None)
    expected = logits_for(4)[1].log_softmax(0).topk(2)
    assert out.logprobs.logprob_token_ids[1].tolist() == [out.tokens[1], *expected.indices.tolist()]
    assert out.logprobs.logprobs[1, 1:].tolist() == expected.values.tolist()
    assert out.logprobs.sampled_token_ranks[1] == 1


def test_a_row_may_stop_once_it_has_its_min_tokens(make_sampler, state):
    sampler = make_sampler()
    logits = torch.zeros(2, VOCAB)
    logits[:, 7], logits[:, 8] = 2.0, 1.0
    states = [state("a"), state("b", SamplingParams(temperature=0, min_tokens=2, stop_token_ids=[7]))]
    assert [sample(sampler, logits, states) for _ in range(4)] == [[7, 8], [7, 8], [7, 7], [7, 7]]


def test_a_grammar_masks_a_row_whose_parameters_do_not_tell(make_sampler, state):
    sampler = make_sampler()
    logits = logits_for(2)
    states = [state("a"), state("b")]
    bits = np.zeros((1, 1024), dtype=np.uint8)
    bits[0, 5] = 1
    grammar = GrammarOutput(["b"], np.packbits(bits, axis=1, bitorder="little").view(np.int32))
    likeliest = logits.argmax(1).tolist()
    assert sample(sampler, logits, states) == likeliest
    assert sample(sampler, logits, states, grammar) == [likeliest[0], 5]
    assert sample(sampler, logits, states) == likeliest


def test_a_seeded_row_goes_on_after_other_batches_and_preemption(make_sampler, state):
    def draw(interrupted):
        sampler, one, other = make_sampler(), state("a", SamplingParams(seed=5), slot=0), state("b", slot=1)
        found = []
        for step in range(6):
            if interrupted and step % 2:
                sample(sampler, logits_for(1), [other])
                one.slot, one.epoch = step, one.epoch + 1
                rows, logits = [other, one], torch.cat([logits_for(1), logits_for(1, step)])
            else:
                rows, logits = [one], logits_for(1, step)
            found.append(sample(sampler, logits, rows)[rows.index(one)])
        return found

    assert draw(interrupted=True) == draw(interrupted=False)


class Counting(LogitsProcessor):
    """A custom processor with a memory: in its n-th step, a row gets token n."""

    def __init__(self, vllm_config, device, is_pin_memory):
        self.steps = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        if batch_update is not None:
            for row in batch_update.removed:
                del self.steps[row]
            for row, *_ in batch_update.added:
                self.steps[row] = 0
            for source, target, _ in batch_update.moved:
                self.steps[target] = self.steps.pop(source)

    def apply(self, logits):
        for row, steps in self.steps.items():
            if logits[row].any():
                logits[row, steps] = 100.0
                self.steps[row] += 1
        return logits


def test_a_custom_processor_keeps_its_state_of_a_request_while_others_come_and_go(make_sampler, state):
    sampler = make_sampler(logits_processors=[Counting])
    a, b, c = (state(name, slot=slot) for slot, name in enumerate("abc"))
    assert sample(sampler, logits_for(2), [a, b]) == [0, 0]
    assert sample(sampler, logits_for(2), [a, b]) == [1, 1]
    assert sample(sampler, logits_for(1), [c]) == [0]  # a prefill between decodes
    assert sample(sampler, logits_for(3), [c, b, a]) == [1, 2, 2]
    a.slot = -1
    assert sample(sampler, logits_for(2), [b, c]) == [3, 2]
    assert sample(sampler, logits_for(2), [b, c]) == [4, 3]


def test_thinking_is_ended_at_its_budget_although_the_batch_changes(tmp_path, state):
    config = probe_config(tmp_path, vocab_size=VOCAB, rows=8)
    config.reasoning_config = ReasoningConfig()
    config.reasoning_config._reasoning_start_token_ids = [50]
    config.reasoning_config._reasoning_end_token_ids = [60, 61]
    sampler = HostSampler(config)
    likely = torch.zeros(3, VOCAB)
    likely[:, 9] = 1.0
    params = SamplingParams(temperature=0, thinking_token_budget=3)
    one, other = state("a", params, prompt=[1, 50], slot=0), state("b", slot=1)
    special = state("c", SamplingParams(temperature=0, logit_bias={3: 1.0}), slot=2)
    found = []
    for step in range(7):
        rows = [one] if step % 2 else [other, special, one]
        found.append(sample(sampler, likely[: len(rows)], rows)[-1])
        sample(sampler, likely[:1], [special])
    assert found == [9, 9, 9, 60, 61, 9, 9]


SAID = (
    "The logits of request {} have no finite maximum: they hold NaN or infinity, or its sampling parameters and "
    "grammar forbid every token. Its tokens mean nothing from here on"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_whose_logits_mean_nothing_is_named_once(make_sampler, state, caplog, dtype):
    sampler = make_sampler()
    allowed = SamplingParams(temperature=0, allowed_token_ids=[3, 4])
    allowed._bad_words_token_ids = [[3], [4]]  # vLLM's tokenizer fills it in
    asked = [None, None, SamplingParams(top_k=5), SamplingParams(seed=1), SamplingParams(logprobs=1), allowed, None]
    states = [state(f"r{row}", params, slot=row) for row, params in enumerate(asked)]
    logits = logits_for(len(states)).to(dtype)
    logits[1, 3] = logits[2, 4] = float("nan")
    logits[3] = -float("inf")
    logits[4, 999] = -float("nan")
    with caplog.at_level(logging.WARNING, logger="vllm.tt.sampling.host"):
        first = sample(sampler, logits, states)
        sample(sampler, logits, states)
    said = [record.getMessage() for record in caplog.records if record.name == "vllm.tt.sampling.host"]
    assert sorted(said) == [SAID.format(f"r{row}") for row in (1, 2, 3, 4, 5)]
    assert first[1:4] == [3, 0, 0]
    assert first[6] == logits[6].float().argmax()


def test_states_may_be_given_in_any_sequence(make_sampler, state):
    sampler, states = make_sampler(), (state("a"), state("b"))
    assert sampler.sample(logits_for(2), states, None).tokens.tolist() == logits_for(2).argmax(1).tolist()
