import torch

from vllm_tt.sampling.noise import Noise


def test_it_is_torchs_exponential_noise_and_the_generator_goes_as_far():
    one, other = torch.Generator().manual_seed(9), torch.Generator().manual_seed(9)
    noise = Noise(50_000)
    for tokens in (slice(None), [3, 49_999, 3], torch.tensor([7])):
        whole = torch.empty(50_000).exponential_(generator=other)
        assert torch.equal(noise.of(one, tokens), whole[tokens])
        assert torch.equal(one.get_state(), other.get_state())
