"""What an installation brings with it."""

import importlib.metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = [Requirement(line) for line in importlib.metadata.requires("vllm-tt")]


def test_an_installation_brings_only_small_libraries():
    plain = {canonicalize_name(requirement.name) for requirement in REQUIREMENTS if requirement.marker is None}
    assert plain == {"click", "huggingface-hub", "jsonschema", "numpy", "packaging", "rich"}


def test_no_extra_replaces_the_builds_of_a_tt_metal_environment():
    names = {requirement.name for requirement in REQUIREMENTS}
    assert not {name for name in names if name in ("vllm", "torch", "torchvision", "triton") or "nvidia" in name}


def test_ttnn_comes_only_with_the_extra_that_asks_for_it():
    (ttnn,) = [requirement for requirement in REQUIREMENTS if requirement.name == "ttnn"]
    assert str(ttnn.marker) == 'extra == "emulation"'
