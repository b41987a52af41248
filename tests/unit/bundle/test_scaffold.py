"""New bundles, compared whole with the trees in ``tests/scaffold``.

To follow a change of a template, run this file with SCAFFOLD_WRITE=1 and read the difference.
"""

import ast
import os
from pathlib import Path

import pytest

from vllm_tt import __version__
from vllm_tt._data import data_path
from vllm_tt.bundle.scaffold import BadChoice, LaunchNeedsWeights, NewBundle, TargetNotEmpty, files, write
from vllm_tt.contract import CALLS
from vllm_tt.host import adapter

TREES = Path(__file__).parents[2] / "scaffold"
NEW = {
    "host": NewBundle(template="host", arch="NovelForCausalLM", name="novel-host"),
    "ttnn": NewBundle(template="ttnn", arch="NovelForCausalLM", name="novel", hf_weights="org/novel", launch=True),
    "builtin": NewBundle(
        template="builtin", arch="TTLlamaForCausalLM", name="llama", main_class="models.x.generator_vllm:Llama"
    ),
}
FROM_BUNDLE = ("host", "generator_vllm.py")
"""Not kept a second time: it is the reference bundle's, with the class renamed."""


@pytest.mark.parametrize("template", NEW)
def test_the_whole_tree(template, tmp_path):
    write(tmp_path / "made", files(NEW[template]))
    made = {path.name: path.read_text("utf-8") for path in (tmp_path / "made").iterdir()}
    texts = {name: text.replace(__version__, "{version}") for name, text in made.items()}
    if os.environ.get("SCAFFOLD_WRITE"):
        (TREES / template).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if (template, name) != FROM_BUNDLE:
                (TREES / template / f"{name}.txt").write_text(text, "utf-8")
    expected = {path.name.removesuffix(".txt"): path.read_text("utf-8") for path in (TREES / template).iterdir()}
    if template == FROM_BUNDLE[0]:
        reference = data_path("bundles/llama-host/generator_vllm.py").read_text("utf-8")
        expected[FROM_BUNDLE[1]] = reference.replace("LlamaForCausalLM", "NovelForCausalLM")
    assert texts == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (files(NEW["ttnn"])["generator_vllm.py"], "NovelForCausalLM"),
        # what the host template's class derives from
        (Path(adapter.__file__).read_text("utf-8"), "HostAdapter"),
    ],
    ids=["ttnn", "host"],
)
def test_adapters_have_the_methods_of_the_contract(text, name):
    tree = ast.parse(text)
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    methods = {node.name: node.args for node in found.body if isinstance(node, ast.FunctionDef)}
    needed = {call.method for call in CALLS} - {"get_kv_cache_spec", "allocate_kv_cache_per_layer", "release_slots"}
    assert needed <= methods.keys()
    for call in CALLS:
        if call.method in methods:
            arguments = methods[call.method]
            named = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
            assert arguments.kwarg or set(call.always[call.positional :]) <= named


@pytest.mark.parametrize(
    ("arch", "class_name"),
    [("NovelForCausalLM", "NovelForCausalLM"), ("TTNovelForCausalLM", "NovelForCausalLM"), ("Llama", "LlamaAdapter")],
)
def test_the_class_is_named_as_the_architecture(arch, class_name):
    new = NewBundle(template="host", arch=arch, name="n")
    assert new.class_name == class_name
    compile(files(new)["generator_vllm.py"], "generator_vllm.py", "exec")


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"arch": "No-vel"}, "'arch' must be a Python identifier: 'No-vel'"),
        (
            {"name": "a b"},
            "'name' must be 1 to 96 letters, digits, '.', '_' or '-', with a letter or digit at both ends, got 'a b'",
        ),
        ({"hf_weights": "/path/" + "x" * 600}, None),
    ],
)
def test_choices_that_make_no_bundle(choice, problem):
    with pytest.raises(BadChoice) as caught:
        files(NewBundle(**{"template": "host", "arch": "A", "name": "n", **choice}))
    if problem:
        assert str(caught.value) == f"A bundle cannot be made of these choices: {problem}."


def test_a_launch_entry_needs_weights():
    with pytest.raises(LaunchNeedsWeights):
        files(NewBundle(template="host", arch="A", name="n", launch=True))


def test_a_folder_with_files_is_left_as_it_is(tmp_path):
    for name in "edcba":
        (tmp_path / name).write_text("mine")
    with pytest.raises(TargetNotEmpty) as caught:
        write(tmp_path, {"x": "new"})
    assert str(caught.value) == (
        f"{tmp_path} is not empty: it holds a, b, c and 2 more. Choose another folder, or replace files with --force."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == list("abcde")


def test_force_replaces_files_of_the_same_name_alone(tmp_path):
    (tmp_path / "a").write_text("mine")
    (tmp_path / "b").write_text("mine")
    write(tmp_path, {"a": "new"}, force=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "mine"}
