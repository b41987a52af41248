import dataclasses
import json

import pytest
from bundle_cases import INVALID, VALID, described, expected, name
from hypothesis import given
from hypothesis import strategies as st

from vllm_tt.bundle.findings import Reader
from vllm_tt.bundle.metadata import Launch, Limits, Metadata, Requires, Serving, parse
from vllm_tt.bundle.requires import Installed, check_requires


def findings(case):
    parsed = parse((case / "vllm_metadata.json").read_bytes())
    found = list(parsed.findings)
    if parsed.metadata is not None:
        found += check_requires(parsed.metadata.requires, Installed())
    return parsed.metadata, found


@pytest.mark.parametrize("case", VALID + INVALID, ids=name)
def test_each_case_yields_the_findings_it_expects(case):
    _, found = findings(case)
    assert described(found) == expected(case)


@pytest.mark.parametrize("case", VALID, ids=name)
def test_valid_cases_are_registered_without_a_word(case):
    metadata, found = findings(case)
    assert metadata is not None
    assert {one.reader for one in found} <= {Reader.QUIET}


@pytest.mark.parametrize("case", INVALID, ids=name)
def test_there_is_no_metadata_exactly_when_the_reader_skips(case):
    parsed = parse((case / "vllm_metadata.json").read_bytes())
    assert (parsed.metadata is None) == (parsed.fault is not None)


def test_every_field_reaches_the_record():
    case = next(case for case in VALID if case.name == "full")
    assert parse((case / "vllm_metadata.json").read_bytes()).metadata == Metadata(
        arch="LlamaForCausalLM",
        architectures=("LlamaForCausalLM", "MistralForCausalLM"),
        main_class="adapter:Model",
        schema_version=1,
        name="llama-host",
        version="1.2.0",
        description="Text on the host, ünïcode too.",
        license="Apache-2.0",
        homepage="https://example.org/llama",
        tags=("text", "llama"),
        hf_weights="org/model",
        hf_revision="0123abc",
        requires=Requires(
            python=">=3.10",
            vllm=">=0.25,<1",
            ttnn=">=0.70",
            vllm_tt=">=0.1",
            packages=("numpy>=1.24", "colorama; sys_platform == 'win32'"),
        ),
        mesh_devices=("N150", "N300"),
        limits=Limits(
            max_model_len=131072, max_num_seqs=32, block_size=64, per_device={"N150": Limits(max_model_len=32768)}
        ),
        serving=Serving(tool_parser="llama3_json", additional_config={"tt": {"trace_mode": "all"}}),
    )


def test_a_launch_map_becomes_text():
    case = next(case for case in VALID if case.name == "launch-map")
    metadata = parse((case / "vllm_metadata.json").read_bytes()).metadata
    assert metadata.launch["default"] == Launch(
        command=("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model", "--max_num_seqs", "32"),
        env={"MESH_DEVICE": "P150", "VLLM_USE_V1": "1", "HF_TOKEN": None},
    )


def test_a_wrong_field_is_lost_alone():
    case = next(case for case in INVALID if case.name == "wrong-limits")
    assert parse((case / "vllm_metadata.json").read_bytes()).metadata == Metadata(
        arch="LlamaForCausalLM",
        architectures=("LlamaForCausalLM",),
        main_class="adapter:Model",
        limits=Limits(per_device={"BH-Galaxy": Limits()}),
    )


def test_module_and_class_are_the_two_sides_of_main_class():
    metadata = parse(b'{"arch": "A", "main_class": "tt.generator:Model"}').metadata
    assert (metadata.module, metadata.class_name) == ("tt.generator", "Model")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([field.name for field in dataclasses.fields(Metadata)] + ["$schema", "other"])


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_no_value_of_any_field_raises(fields):
    assert parse(json.dumps(fields).encode()).metadata is None or "arch" in fields
    good = {**fields, "arch": "LlamaForCausalLM", "main_class": "adapter:Model"}
    metadata = parse(json.dumps(good).encode()).metadata
    assert metadata is not None
    assert metadata.main_class == "adapter:Model"
