import pytest
import torch
from steps import new_request
from vllm.sampling_params import SamplingParams

from vllm_tt.batch.requests import RequestState, UnsupportedRequest


def test_tokens_run_from_the_prompt_into_the_output():
    state = RequestState.new(new_request("a", [1, 2, 3], [7]))
    state.output_token_ids += [10, 11]
    assert [state.tokens(n) for n in (2, 3, 5)] == [[1, 2], [1, 2, 3], [1, 2, 3, 10, 11]]
    assert state.num_tokens == 5


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1])
def test_a_seed_makes_its_own_random_state(seed):
    assert _draw(seed) == torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()


def test_seeds_that_share_their_low_bits_draw_apart():
    seeds = [5, 2**32 + 5, 2**33 + 5, -5, 5 - 2**32, 2**63 - 1, -(2**63), 0]
    draws = {tuple(_draw(seed)) for seed in seeds}
    assert len(draws) == len(seeds)


def _draw(seed):
    state = RequestState.new(new_request("a", [1], [1], params=SamplingParams(seed=seed)))
    return torch.rand(4, generator=state.generator).tolist()


def test_a_token_that_was_discarded_is_drawn_again_from_the_same_numbers():
    def draw():
        state.before_draw()
        state.output_token_ids.append(torch.randint(1000, (1,), generator=state.generator).item())

    state = RequestState.new(new_request("a", [1], [1], params=SamplingParams(seed=3)))
    for _ in range(9):
        draw()
    tokens = [1, *state.output_token_ids]
    for kept in (9, 7, 9, 8):
        state.replay(tokens[: 1 + kept])
        while len(state.output_token_ids) < 9:
            draw()
        assert state.output_token_ids == tokens[1:]


def test_without_a_seed_there_is_no_generator():
    assert RequestState.new(new_request("a", [1], [7])).generator is None


def test_prompt_embeddings_are_refused():
    with pytest.raises(UnsupportedRequest) as error:
        RequestState.new(new_request("a", None, [7]))
    assert str(error.value) == (
        "Request 'a' has prompt embeddings; the Tenstorrent worker serves token-id prompts with sampling parameters."
    )
