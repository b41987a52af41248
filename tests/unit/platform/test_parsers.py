"""What a bundle declares, up to the command line that a server goes on reading."""

import json

import pytest
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm_tt.bundle.reading import load
from vllm_tt.models.entry import Entry
from vllm_tt.platform import parsers, settled
from vllm_tt.platform.parsers import UnknownParser


@pytest.fixture
def declared(tmp_path, make_config):
    """A configuration that the bundle's declaration is settled in, and the line for the log."""

    def make(outputs=None, **serving):
        metadata = {"arch": "LlamaForCausalLM", "main_class": "adapter:Model", "serving": serving}
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / "vllm_metadata.json").write_text(json.dumps(metadata))
        config = make_config()
        config.model_config.skip_tokenizer_init = False
        config.structured_outputs_config.reasoning_parser = outputs or ""
        settled.keep(config)
        return config, parsers.declare(config, Entry.of_bundle("LlamaForCausalLM", load(folder)))

    return make


def parsed(*words):
    parser = make_arg_parser(FlexibleArgumentParser())
    return parser.parse_args(list(words))


def chosen(arguments):
    return (
        arguments.tool_call_parser,
        arguments.enable_auto_tool_choice,
        arguments.structured_outputs_config.reasoning_parser,
    )


def test_both_reach_a_server_whose_user_named_none(declared):
    config, line = declared(tool_parser="hermes", reasoning_parser="granite")
    arguments = parsed()
    parsers.hand_over(config, arguments)
    assert chosen(arguments) == ("hermes", True, "granite")
    assert config.reasoning_config.reasoning_parser == "granite"
    assert line == "reasoning is split off by the parser granite, which bundle mine declares"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--tool-call-parser", "pythonic", "--enable-auto-tool-choice"], ("pythonic", True)),
        (["--tool_call_parser=pythonic"], ("pythonic", False)),
        (["--no-enable-auto-tool-choice"], (None, False)),
    ],
    ids=["parser and choice", "parser", "no choice"],
)
def test_what_the_user_said_about_tools_stays(declared, words, expected):
    config, _ = declared(tool_parser="hermes")
    arguments = parsed(*words)
    parsers.hand_over(config, arguments)
    assert chosen(arguments)[:2] == expected


def test_the_users_reasoning_parser_stays(declared):
    config, line = declared(outputs="olmo3", reasoning_parser="granite")
    assert (config.structured_outputs_config.reasoning_parser, config.reasoning_config, line) == ("olmo3", None, None)


@pytest.mark.parametrize("serving", [{}, {"tool_parser": "", "reasoning_parser": None}], ids=["nothing", "blank"])
def test_nothing_declared_changes_nothing(declared, serving):
    config, line = declared(**serving)
    arguments = parsed()
    parsers.hand_over(config, arguments)
    assert (chosen(arguments), config.reasoning_config, line) == ((None, False, ""), None, None)


def test_an_unknown_tool_parser_names_the_nearest(declared):
    config, _ = declared(tool_parser="llama3-json")
    with pytest.raises(UnknownParser) as caught:
        parsers.hand_over(config, parsed())
    assert str(caught.value) == (
        "bundle mine declares the tool parser 'llama3-json', which vLLM does not have. Did you mean 'llama3_json'? "
        "Choose another with --enable-auto-tool-choice --tool-call-parser, or --no-enable-auto-tool-choice, or correct "
        "serving.tool_parser in the bundle's vllm_metadata.json."
    )
    arguments = parsed("--no-enable-auto-tool-choice")
    parsers.hand_over(config, arguments)
    assert chosen(arguments)[:2] == (None, False)


def test_an_unknown_reasoning_parser_lists_what_there_is(declared):
    with pytest.raises(UnknownParser, match=r"the reasoning parser 'zzz', .* It has .*deepseek_r1, .*qwen3"):
        declared(reasoning_parser="zzz")


def test_a_command_line_without_the_chat_api_is_left_alone(declared):
    config, _ = declared(tool_parser="hermes")
    arguments = parsed()
    del arguments.tool_call_parser
    parsers.hand_over(config, arguments)
    assert arguments.enable_auto_tool_choice is None


def test_a_configuration_made_of_a_command_line_is_handed_to_it(declared, tmp_path, monkeypatch):
    config, _ = declared(tool_parser="hermes")
    given = []
    monkeypatch.setattr(EngineArgs, "create_engine_config", lambda self, **options: given.append(options) or config)
    arguments = parsed("--model", str(tmp_path))
    assert EngineArgs.from_cli_args(arguments).create_engine_config(headless=True) is config
    assert given == [{"headless": True}]
    assert chosen(arguments) == ("hermes", True, "")
