import numpy as np
import torch
from vllm.v1.sample.logits_processor import MoveDirectionality

from vllm_tt.sampling.kept import KeptRows


class Follower:
    """Follows the updates as vLLM's processors do: who is at which row."""

    def __init__(self):
        self.at = {}

    def take(self, update):
        if update is None:
            return
        for row in update.removed:
            del self.at[row]
        for row, _, _, output in update.added:
            self.at[row] = output
        for source, target, kind in update.moved:
            assert kind is MoveDirectionality.UNIDIRECTIONAL
            self.at[target] = self.at.pop(source)
        assert sorted(self.at) == list(range(update.batch_size))


def test_rows_follow_their_requests_through_any_change(state):
    random = np.random.default_rng(1)
    rows, follower, live, made = KeptRows(), Follower(), [], 0
    for _ in range(300):
        for one in [one for one in live if random.random() < 0.2]:
            one.slot, one.epoch = -1, one.epoch + 1
            if random.random() < 0.5:
                live.remove(one)
        for _ in range(random.integers(3)):
            live.append(state(str(made), slot=-1))
            made += 1
        step = [one for one in live if random.random() < 0.7]
        for one in step:
            one.slot = 1
        ordered, update = rows.update(step)
        follower.take(update)
        assert set(ordered) == set(step)
        row_of = {id(output): row for row, output in follower.at.items()}
        places = [row_of[id(one.output_token_ids)] for one in ordered]
        assert places == sorted(places)
        assert set(follower.at) == {row_of[id(one.output_token_ids)] for one in live if one.slot != -1}


def test_the_same_rows_change_nothing(state):
    rows = KeptRows()
    step = [state("a"), state("b")]
    rows.update(step)
    assert rows.update(step[::-1]) == (step, None)


def test_rows_that_a_step_lacks_are_zeros(state):
    rows = KeptRows()
    a, b, c = state("a", slot=0), state("b", slot=1), state("c", slot=2)
    rows.update([a, b, c])
    rows.update([c, a])
    seen = []

    def add_row_number(logits):
        seen.append(logits.tolist())
        return logits + torch.arange(3)[:, None] * 10

    assert rows.through(torch.tensor([[1.0], [2.0]]), add_row_number).tolist() == [[1.0], [22.0]]
    assert seen == [[[1.0], [0.0], [2.0]]]
    rows.update([b, a, c])
    logits = torch.zeros(3, 1)
    assert rows.through(logits, lambda same: same) is logits
