from __future__ import annotations

import dataclasses
import json

import pytest

from vllm_tt.config import LaneShape, MisplacedOption, NotAMapping, OptionValue, TTConfig, UnknownOption, WrongKey

OPTIONS = (
    "sample_on_device_mode, always_compat_sampling, trace_mode, enable_model_warmup, trace_region_size, "
    "worker_l1_size, l1_small_size, fabric_config, fabric_reliability_mode, fabric_max_packet_payload_size_bytes, "
    "dispatch_core_axis, optimizations, decode_interleave_enabled, decode_interleave_prefill_steps, "
    "decode_interleave_decode_steps, lanes, step_log, step_log_bytes, register_test_models, env_passthrough"
)
DEFAULTS = {
    "sample_on_device_mode": None,
    "always_compat_sampling": False,
    "trace_mode": "all",
    "enable_model_warmup": True,
    "trace_region_size": None,
    "worker_l1_size": None,
    "l1_small_size": None,
    "fabric_config": None,
    "fabric_reliability_mode": None,
    "fabric_max_packet_payload_size_bytes": None,
    "dispatch_core_axis": None,
    "optimizations": None,
    "decode_interleave_enabled": True,
    "decode_interleave_prefill_steps": 2,
    "decode_interleave_decode_steps": 1,
    "lanes": None,
    "step_log": None,
    "step_log_bytes": 64_000_000,
    "register_test_models": False,
    "env_passthrough": (),
}

# What released deployments pass as --additional-config.
RELEASED = [
    '{"tt": {}}',
    '{"tt": {"trace_region_size": 27381760}}',
    '{"tt": {"trace_region_size": 3758096384, "sample_on_device_mode": "all"}}',
    '{"tt": {"sample_on_device_mode": "decode_only", "trace_mode": "all", "enable_model_warmup": true}}',
    '{"tt": {"fabric_config": "FABRIC_1D", "l1_small_size": 24576}}',
    (
        '{"tt": {"fabric_config": "FABRIC_1D_RING", "dispatch_core_axis": "col", "worker_l1_size": 1344544,'
        ' "trace_region_size": 220000000, "sample_on_device_mode": "all"}}'
    ),
    '{"tt": {"fabric_config": "FABRIC_2D_TORUS_XY", "fabric_reliability_mode": "RELAXED_INIT"}}',
    '{"tt": {"trace_mode": "decode_only"}}',
    '{"tt": {"trace_mode": "none", "env_passthrough": ["DEEPSEEK_V3_HF_MODEL", "HF_MODEL"]}}',
    '{"tt": {"fabric_max_packet_payload_size_bytes": 8192, "optimizations": "performance"}}',
    '{"tt": {"decode_interleave_prefill_steps": 1, "decode_interleave_decode_steps": 8}}',
    '{"tt": {"decode_interleave_enabled": false, "always_compat_sampling": true, "register_test_models": true}}',
]

REFUSED = [
    ("always_compat_sampling", 1, "1 (int): expected true or false."),
    ("always_compat_sampling", None, "null: expected true or false."),
    (
        "always_compat_sampling",
        "False",
        (
            "the string 'False': expected true or false. Write false without quotes and in lower case: "
            "--additional-config.tt.always_compat_sampling false"
        ),
    ),
    (
        "enable_model_warmup",
        "true",
        (
            "the string 'true': expected true or false. Write true without quotes and in lower case: "
            "--additional-config.tt.enable_model_warmup true"
        ),
    ),
    ("enable_model_warmup", "yes", "the string 'yes': expected true or false."),
    ("decode_interleave_prefill_steps", True, "true: expected an integer of at least 1."),
    ("decode_interleave_prefill_steps", 0, "0 (int): expected an integer of at least 1."),
    ("decode_interleave_decode_steps", -1, "-1 (int): expected an integer of at least 1."),
    ("decode_interleave_decode_steps", 2.5, "2.5 (float): expected an integer of at least 1."),
    (
        "decode_interleave_decode_steps",
        "2",
        "the string '2': expected an integer of at least 1. Write the number without quotes: 2",
    ),
    ("trace_region_size", False, "false: expected a number of bytes, at least 0."),
    ("trace_region_size", 1e9, "1000000000.0 (float): expected a number of bytes, at least 0."),
    ("worker_l1_size", -5, "-5 (int): expected a number of bytes, at least 0."),
    ("trace_mode", "decode", "the string 'decode': expected one of all, decode_only, none."),
    ("trace_mode", True, "true: expected one of all, decode_only, none."),
    ("trace_mode", None, "null: expected one of all, decode_only, none."),
    ("sample_on_device_mode", "prefill_only", "the string 'prefill_only': expected one of all, decode_only."),
    ("dispatch_core_axis", "COL", "the string 'COL': expected one of row, col."),
    ("optimizations", ["accuracy"], "['accuracy'] (list): expected one of performance, accuracy."),
    ("fabric_config", "fabric_1d", "the string 'fabric_1d': expected a name of ttnn.FabricConfig such as FABRIC_1D."),
    (
        "fabric_reliability_mode",
        "RELAXED",
        "the string 'RELAXED': expected one of STRICT_INIT, RELAXED_INIT, DYNAMIC_RECONFIG.",
    ),
    (
        "env_passthrough",
        "HF_MODEL",
        "the string 'HF_MODEL': expected a list of environment variable names such as [\"HF_MODEL\"].",
    ),
    (
        "env_passthrough",
        ["HF_MODEL=x"],
        "['HF_MODEL=x'] (list): expected a list of environment variable names such as [\"HF_MODEL\"].",
    ),
]


def parse(options):
    return TTConfig.from_additional_config({"tt": options})


@pytest.mark.parametrize("additional", [None, {}, {"tt": {}}, {"other_backend": "x", "tt": {}}])
def test_defaults(additional):
    assert dataclasses.asdict(TTConfig.from_additional_config(additional)) == DEFAULTS


@pytest.mark.parametrize("text", RELEASED)
def test_released_deployments_pass(text):
    additional = json.loads(text)
    expected = DEFAULTS | additional["tt"]
    expected["env_passthrough"] = tuple(expected["env_passthrough"])
    assert dataclasses.asdict(TTConfig.from_additional_config(additional)) == expected


def test_null_means_the_default_where_the_default_is_none():
    options = {name: None for name, default in DEFAULTS.items() if default is None}
    assert parse(options) == TTConfig()


@pytest.mark.parametrize(("name", "value", "rest"), REFUSED)
def test_refuses_a_value(name, value, rest):
    with pytest.raises(OptionValue) as caught:
        parse({name: value})
    assert str(caught.value) == f"additional_config[\"tt\"]['{name}'] is {rest}"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("sample_on_devic_mode", " Did you mean 'sample_on_device_mode'?"),
        ("Trace-Mode", " Did you mean 'trace_mode'?"),
        ("input_queue_batching_delay", ""),
    ],
)
def test_refuses_an_unknown_key(name, nearest):
    with pytest.raises(UnknownOption) as caught:
        parse({name: 1})
    assert str(caught.value) == f"additional_config[\"tt\"] has no option '{name}'.{nearest} The options are {OPTIONS}."


@pytest.mark.parametrize(
    ("additional", "where", "found"),
    [
        ("tt", "additional_config", "the string 'tt'"),
        (["tt"], "additional_config", "['tt'] (list)"),
        ({"tt": None}, 'additional_config["tt"]', "null"),
        ({"tt": True}, 'additional_config["tt"]', "true"),
        ({"tt": "all"}, 'additional_config["tt"]', "the string 'all'"),
    ],
)
def test_refuses_what_is_not_a_mapping(additional, where, found):
    with pytest.raises(NotAMapping) as caught:
        TTConfig.from_additional_config(additional)
    assert str(caught.value) == (
        f"{where} must be a mapping of options, found {found}. "
        'Write --additional-config \'{"tt": {"trace_mode": "none"}}\' or --additional-config.tt.trace_mode none.'
    )


def test_refuses_an_option_outside_tt():
    with pytest.raises(MisplacedOption) as caught:
        TTConfig.from_additional_config({"trace_mode": "none"})
    assert str(caught.value) == (
        "additional_config['trace_mode'] is an option of \"tt\": "
        'write --additional-config \'{"tt": {"trace_mode": ...}}\' or --additional-config.tt.trace_mode ...'
    )


@pytest.mark.parametrize("name", ["TT", "Tt", "tt_config", "tt-config", "override_tt_config", "plugin_config"])
def test_refuses_another_spelling_of_the_key(name):
    with pytest.raises(WrongKey) as caught:
        TTConfig.from_additional_config({name: {"trace_mode": "none"}})
    assert str(caught.value) == (
        f"additional_config['{name}'] is read by nobody: the options belong under the key \"tt\". Write "
        '--additional-config \'{"tt": {"trace_mode": "none"}}\' or --additional-config.tt.trace_mode none.'
    )


@pytest.mark.parametrize(
    ("mode", "prefill", "decode"), [("all", True, True), ("decode_only", False, True), ("none", False, False)]
)
def test_trace_mode(mode, prefill, decode):
    config = parse({"trace_mode": mode})
    assert (config.traces_prefill, config.traces_decode) == (prefill, decode)


def test_every_option_has_help():
    assert [option.name for option in dataclasses.fields(TTConfig)] == OPTIONS.split(", ")
    assert all(option.metadata["help"].endswith(".") for option in dataclasses.fields(TTConfig))


def test_the_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TTConfig().trace_mode = "none"


def test_lane_shape():
    assert LaneShape(4, 8).rows == 32
