import pytest
from probe_config import probe_config
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessor

from vllm_tt.sampling.loaded import LoadedProcessors


class Recording(LogitsProcessor):
    """A custom processor that remembers what it was told."""

    def __init__(self, vllm_config, device, is_pin_memory):
        self.told = []

    def is_argmax_invariant(self):
        return True

    def update_state(self, batch_update):
        self.told.append(batch_update)

    def apply(self, logits):
        return logits


@pytest.fixture
def make(tmp_path):
    def make(**options):
        return LoadedProcessors(probe_config(tmp_path, vocab_size=50, rows=8, **options))

    return make


def kinds(processors):
    return [type(one).__name__ for one in processors]


def test_the_sampler_sees_custom_processors_through_their_rows(make):
    plain, custom = make(), make(logits_processors=[Recording])
    assert not plain.custom
    assert custom.custom
    own = ["MinTokensLogitsProcessor", "LogitBiasLogitsProcessor"]
    for loaded, more in ((plain, []), (custom, ["KeptProcessor"])):
        assert kinds(loaded.for_sampler.non_argmax_invariant) == own
        assert kinds(loaded.for_sampler.argmax_invariant) == ["MinPLogitsProcessor", *more]
        assert loaded.budgets is None


def test_a_custom_processor_is_told_of_changes_and_of_every_step(make, state, monkeypatch):
    made = []
    monkeypatch.setattr(Recording, "__init__", lambda self, *_: (made.append(self), setattr(self, "told", []))[0])
    loaded = make(logits_processors=[Recording])
    a, b, c = (state(name, slot=slot) for slot, name in enumerate("abc"))
    assert loaded.begin([a, b]) == [a, b]
    loaded.go_on()
    assert loaded.begin([c]) == [c]
    a.slot = -1
    assert loaded.begin([b, c]) == [c, b]
    first, same, joined, moved = made[0].told
    assert [row for row, *_ in first.added] == [0, 1]
    assert same is None
    assert [(row, prompt is c.prompt_token_ids) for row, _, prompt, _ in joined.added] == [(2, True)]
    assert (joined.removed, joined.moved, joined.batch_size) == ([], [], 3)
    assert ([*moved.added], [*moved.removed], moved.batch_size) == ([], [], 2)
    assert [(source, target) for source, target, _ in moved.moved] == [(2, 0)]


def test_vllms_own_know_the_rows_of_the_step(make, state):
    loaded = make()
    biased = state("a", SamplingParams(logit_bias={3: 1.0}))
    of_p = state("b", SamplingParams(min_p=0.5))
    of_tokens = state("c", SamplingParams(min_tokens=2, stop_token_ids=[4]))
    min_tokens, bias = loaded.for_sampler.non_argmax_invariant
    (min_p,) = loaded.for_sampler.argmax_invariant
    loaded.begin([biased, of_p, of_tokens])
    assert (list(bias.biases), list(min_tokens.min_toks), min_p.min_p_count) == ([0], [2], 1)
    loaded.begin([of_tokens])
    assert (list(bias.biases), list(min_tokens.min_toks), min_p.min_p_count) == ([], [0], 0)
    of_tokens.output_token_ids.extend([1, 2])
    loaded.go_on()
    assert not min_tokens.min_toks
