import random

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from tools.tiny_models.__main__ import main
from tools.tiny_models.families import FAMILIES
from tools.tiny_models.write import make, write

PROMPTS = [random.Random(length).choices(range(10, 250), k=length) for length in (1, 40, 120)]
TOKENS = 24


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def greedy(family):
    """For each prompt the tokens that follow, and by how much each is likelier than the next."""
    model, *_ = make(family, seed=3)
    found = []
    for prompt in PROMPTS:
        out = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=TOKENS,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
            pad_token_id=0,
        )
        best = torch.cat(out.logits).topk(2).values
        found.append((out.sequences[0, len(prompt) :].tolist(), best[:, 0] - best[:, 1]))
    return found


def test_tokens_vary_with_the_prompt_and_on_the_way(greedy):
    answers = [tokens for tokens, _ in greedy]
    assert all(len(tokens) == TOKENS and len(set(tokens)) > TOKENS // 3 for tokens in answers), answers
    assert len({tuple(tokens[:4]) for tokens in answers}) == len(PROMPTS)


def test_the_likeliest_token_stands_out(greedy):
    margins = torch.cat([margin for _, margin in greedy])
    assert margins.median() > 0.1
    assert margins.min() > 2e-4


def test_a_checkpoint_follows_from_its_seed(family, tmp_path):
    first, again, other = (
        load_file(write(family, tmp_path / name, seed=seed) / "model.safetensors")
        for name, seed in (("first", 3), ("again", 3), ("other", 4))
    )
    assert all(tensor.dtype == torch.float32 for tensor in first.values())
    assert all(torch.equal(first[name], again[name]) for name in first | again)
    assert not any(torch.equal(first[name], other[name]) for name in first | other)


def test_making_one_leaves_the_random_state_alone(family):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    make(family)
    assert torch.equal(torch.rand(1), expected)


def test_the_command_says_where_it_wrote(family, tmp_path):
    result = CliRunner().invoke(main, [family, str(tmp_path / "tiny"), "--seed", "3"])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'tiny'}\n")
    assert (tmp_path / "tiny" / "config.json").is_file()
