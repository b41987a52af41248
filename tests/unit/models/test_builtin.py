import pytest

from vllm_tt import env
from vllm_tt.mesh import BLACKHOLE
from vllm_tt.models import builtin
from vllm_tt.models.builtin import (
    Builtin,
    Capacity,
    Feature,
    NotServedYet,
    SelectorError,
    VariableMissing,
    Variant,
    meshes_text,
)
from vllm_tt.models.builtin_table import BUILTINS

BY_ARCH = {one.arch: one for one in BUILTINS}


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


def test_what_cannot_be_served_yet_is_refused_until_it_can(monkeypatch, nothing_served_yet):
    variant = Variant(main_class="models.v:Vision", needs=frozenset({Feature.KV_GROUPS, Feature.IMAGES}))
    with pytest.raises(NotServedYet) as caught:
        variant.check("TTVision", {})
    assert str(caught.value) == (
        "TTVision (models.v:Vision) cannot be served yet: it takes images in the prompt and several KV cache groups. "
        "'tt-bundle list --builtin' shows what can."
    )
    monkeypatch.setattr(builtin, "NOT_YET", frozenset({Feature.KV_GROUPS}))
    assert variant.missing == ("several KV cache groups",)
    monkeypatch.setattr(builtin, "NOT_YET", frozenset())
    variant.check("TTVision", {})


def test_a_variable_that_is_needed_and_not_set():
    deepseek = BY_ARCH["TTDeepseekV3ForCausalLM"].variants[""]
    deepseek.check("TTDeepseekV3ForCausalLM", {"DEEPSEEK_V3_HF_MODEL": "/weights"})
    with pytest.raises(VariableMissing) as caught:
        deepseek.check("TTDeepseekV3ForCausalLM", {})
    assert str(caught.value) == (
        "TTDeepseekV3ForCausalLM (models.demos.deepseek_v3.tt.generator_vllm:DeepseekV3ForCausalLM) needs the variable "
        "DEEPSEEK_V3_HF_MODEL, which is not set. "
        "Checkpoint folder whose weights tt-metal's generator of DeepSeek V3 loads."
    )


@pytest.mark.parametrize(
    ("capacity", "text"),
    [
        (Capacity(), "131072"),
        (Capacity(tokens=None), "max-model-len x max-num-seqs"),
        (Capacity(tokens=65_536, models="72B", meshes=("T3K",)), "65536 for 72B on T3K"),
        (Capacity(tokens=32_768, meshes=("N150", "N300")), "32768 on N150, N300"),
    ],
    ids=["usual", "product", "models and mesh", "meshes"],
)
def test_capacities_in_words(capacity, text):
    assert str(capacity) == text


def test_meshes_in_words():
    assert [meshes_text(one) for one in ((), BLACKHOLE, ("TG",), ("N150", "T3K"))] == [
        "any",
        "Blackhole",
        "TG",
        "N150, T3K",
    ]


def test_the_default_is_the_first():
    one = Variant(main_class="models.a:A")
    made = Builtin(arch="TTA", models="A", variants={"new": one, "old": one}, selector=env.LLAMA_TEXT_VER)
    assert made.default == made.choose({}) == "new"
