import re

import pytest

from vllm_tt.models.builtin import BUILTINS, SERVE_LANES, SelectorError

BY_ARCH = {builtin.arch: builtin for builtin in BUILTINS}


def test_each_architecture_is_listed_once():
    assert len(BY_ARCH) == len(BUILTINS)


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda builtin: builtin.arch)
def test_rows_are_well_formed(builtin):
    assert re.fullmatch(r"TT[A-Z]\w+", builtin.arch)
    assert set(builtin.notes) <= set(builtin.classes)
    for path in builtin.classes.values():
        assert re.fullmatch(r"models(\.[a-z0-9_]+)+:\w+", path)
    assert bool(builtin.selector) == ("" not in builtin.classes)


@pytest.mark.parametrize(
    ("arch", "environ", "value"),
    [
        ("TTLlamaForCausalLM", {}, "tt_transformers"),
        ("TTLlamaForCausalLM", {"TT_LLAMA_TEXT_VER": "llama2_70b"}, "llama2_70b"),
        ("TTLlamaForCausalLM", {"TT_QWEN3_TEXT_VER": "qwen3_32b_galaxy"}, "tt_transformers"),
        ("TTQwen3ForCausalLM", {"TT_QWEN3_TEXT_VER": "qwen3_32b_galaxy"}, "qwen3_32b_galaxy"),
        ("TTQwen3_5ForConditionalGeneration", {}, "qwen36_blackhole"),
        ("TTMistralForCausalLM", {}, ""),
    ],
)
def test_selectors(arch, environ, value):
    assert BY_ARCH[arch].choose(environ) == value


def test_an_unknown_selector_value_lists_the_valid_ones():
    with pytest.raises(SelectorError) as caught:
        BY_ARCH["TTLlamaForCausalLM"].choose({"TT_LLAMA_TEXT_VER": "llama4"})
    assert str(caught.value) == (
        "TT_LLAMA_TEXT_VER='llama4' selects no generator for TTLlamaForCausalLM. "
        "Valid values: tt_transformers, llama3_70b_galaxy, llama2_70b."
    )


def test_the_classes_that_serve_lanes_are_listed_ones_and_noted():
    noted = {
        path
        for builtin in BUILTINS
        for value, path in builtin.classes.items()
        if builtin.notes.get(value) == "folds data parallelism into lanes"
    }
    assert noted == SERVE_LANES
    assert len(noted) == 3
