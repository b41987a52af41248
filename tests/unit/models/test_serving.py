import json

import pytest

from vllm_tt.bundle.reading import load
from vllm_tt.models.serving import NotRegistered, NoWeights, serve_command

BASE = {"arch": "NovelForCausalLM", "main_class": "gen:Novel", "hf_weights": "org/novel"}
LIMITS = {"max_model_len": 8192, "max_num_seqs": 32, "per_device": {"N150": {"max_model_len": 2048}}}

CASES = {
    "weights alone": ({}, "", {}, "vllm serve org/novel"),
    "revision": ({"hf_revision": "abc"}, "", {}, "vllm serve org/novel --revision abc"),
    "no revision for other weights": ({"hf_revision": "abc"}, "/other", {}, "vllm serve /other"),
    "limits": ({"limits": LIMITS}, "", {}, "vllm serve org/novel --max-model-len 8192 --max-num-seqs 32"),
    "limits of the mesh": (
        {"limits": LIMITS},
        "",
        {"MESH_DEVICE": "N150"},
        "vllm serve org/novel --max-model-len 2048 --max-num-seqs 32",
    ),
    "the user wins": (
        {"limits": LIMITS},
        "--max_model_len 64 --port 1",
        {},
        "vllm serve org/novel --max-num-seqs 32 --max_model_len 64 --port 1",
    ),
    "parsers": (
        {"serving": {"tool_parser": "hermes", "reasoning_parser": "deepseek_r1"}},
        "",
        {},
        "vllm serve org/novel --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser deepseek_r1",
    ),
    "additional configuration": (
        {"serving": {"additional_config": {"tt": {"trace_mode": "none"}}}, "limits": {"trace_region_size": 5}},
        "--additional-config.tt.trace_mode all --seed 1",
        {},
        """vllm serve org/novel --additional-config '{"tt": {"trace_region_size": 5, "trace_mode": "all"}}' --seed 1""",
    ),
    "a repeated flag of the user's": (
        {},
        "--middleware a --middleware b",
        {},
        "vllm serve org/novel --middleware a --middleware b",
    ),
    "launch": (
        {
            "limits": {"max_model_len": 8192},
            "launch": {
                "default": {
                    "command": ["python3", "server_example_tt.py", "--model", "org/other", "--max_model_len", 1024],
                    "env": {"MESH_DEVICE": "N300", "VLLM_X": "a b", "OLD": None},
                }
            },
        },
        "",
        {},
        "env -u OLD EXTRA_MODELS_DIR={parent} MESH_DEVICE=N300 VLLM_X='a b' vllm serve org/other --max-model-len 1024",
    ),
    "tt-metal's own generators": (
        {"main_class": "models.x.tt.generator_vllm:Novel"},
        "",
        {},
        "EXTRA_MODELS_DIR={parent} HF_MODEL=org/novel vllm serve org/novel",
    ),
}


def bundle(folder, **more):
    folder.mkdir()
    (folder / "vllm_metadata.json").write_text(json.dumps(BASE | more))
    return load(folder)


@pytest.mark.parametrize("case", CASES)
def test_one_command_line(tmp_path, case):
    more, words, environ, line = CASES[case]
    made = serve_command(bundle(tmp_path / "novel", **more), model=None, words=words.split(), environ=environ)
    if "EXTRA_MODELS_DIR" not in line:
        line = "EXTRA_MODELS_DIR={parent} " + line
    assert made.line == line.replace("{parent}", str(tmp_path))


def test_a_bundle_without_weights_needs_a_model(tmp_path):
    plain = bundle(tmp_path / "novel", hf_weights=None)
    with pytest.raises(NoWeights) as caught:
        serve_command(plain, model=None, words=[], environ={})
    assert str(caught.value) == (
        "novel does not say which weights it serves: name a checkpoint folder or Hub id with --model."
    )
    assert serve_command(plain, model="/w", words=[], environ={}).words == ("vllm", "serve", "/w")


def test_a_bundle_that_another_one_shadows_would_not_be_served(tmp_path):
    bundle(tmp_path / "earlier")
    with pytest.raises(NotRegistered) as caught:
        serve_command(bundle(tmp_path / "later"), model=None, words=[], environ={})
    assert str(caught.value) == (
        f"{tmp_path / 'later'} would not be served: TTNovelForCausalLM is served by bundle earlier; "
        "move one of them to another folder."
    )


def test_a_bundle_whose_requirements_are_not_met_would_not_be_served(tmp_path):
    needy = bundle(tmp_path / "needy", requires={"packages": ["no-such-package"]})
    with pytest.raises(NotRegistered, match="needs the package 'no-such-package', which is not installed"):
        serve_command(needy, model=None, words=[], environ={})


def test_notes_say_what_is_unusual(tmp_path):
    bundle(tmp_path / "a", architectures=["NovelForCausalLM"])
    both = bundle(tmp_path / "b", architectures=["NovelForCausalLM", "OtherForCausalLM"], mesh_devices=["T3K"])
    made = serve_command(both, model=None, words=[], environ={"TT_EMULATE": "N300"})
    assert made.notes == (
        "TTNovelForCausalLM is served by bundle a",
        "bundle b was made for T3K; this mesh is N300",
    )
