import re
from pathlib import Path

import pytest

from vllm_tt.mesh import BLACKHOLE, MESH_GRIDS, WORMHOLE
from vllm_tt.models.builtin import Feature
from vllm_tt.models.builtin_table import BUILTINS, VARIANTS

README = Path(__file__).parents[3] / "README.md"
CLASSES = [(one.arch, variant) for one in BUILTINS for variant in one.variants.values()]


def test_each_architecture_is_listed_once():
    assert len({one.arch for one in BUILTINS}) == len(BUILTINS)


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda one: one.arch)
def test_rows_are_well_formed(builtin):
    assert re.fullmatch(r"TT[A-Z]\w+", builtin.arch)
    assert bool(builtin.selector) == ("" not in builtin.variants)
    for variant in builtin.variants.values():
        assert re.fullmatch(r"models(\.[a-z0-9_]+)+:\w+", variant.main_class)
        machines = {*variant.meshes, *variant.options, *(mesh for one in variant.capacities for mesh in one.meshes)}
        assert machines <= set(MESH_GRIDS)
        assert not any(note.endswith(".") for note in variant.notes)
        # what holds for all checkpoints comes first
        assert [bool(one.models) for one in variant.capacities] == [False] + [True] * (len(variant.capacities) - 1)


def test_every_machine_has_one_chip():
    assert sorted(WORMHOLE + BLACKHOLE) == sorted(MESH_GRIDS)


def test_a_class_is_the_same_wherever_it_is_listed():
    for _, variant in CLASSES:
        known = VARIANTS[variant.main_class]
        for field in ("meshes", "lanes", "needs", "variables"):
            assert getattr(known, field) == getattr(variant, field)


def test_the_classes_that_serve_lanes():
    assert [path for path, variant in VARIANTS.items() if variant.lanes] == [
        "models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM",
        "models.demos.llama3_70b_galaxy.tt.generator_vllm:QwenForCausalLM",
        "models.tt_transformers.tt.generator_vllm:GptOssForCausalLM",
    ]


def test_the_classes_that_take_more_than_text():
    assert {arch: variant.needs for arch, variant in CLASSES if variant.needs} == {
        "TTMllamaForConditionalGeneration": {Feature.IMAGES, Feature.CROSS_ATTENTION},
        "TTQwen3_5ForConditionalGeneration": {Feature.IMAGES},
        "TTQwen2_5_VLForConditionalGeneration": {Feature.IMAGES},
        "TTQwen3VLForConditionalGeneration": {Feature.IMAGES},
        "TTMistral3ForConditionalGeneration": {Feature.IMAGES},
        "TTGemma3ForConditionalGeneration": {Feature.IMAGES, Feature.KV_GROUPS},
    }


def test_the_readme_shows_the_options_of_the_table():
    text = " ".join(README.read_text("utf-8").replace("\\\n", " ").split())
    for _, variant in CLASSES:
        for mesh, options in variant.options.items():
            assert re.search(rf"MESH_DEVICE={mesh} [^#]*vllm serve \S+ {re.escape(options)}", text), mesh
