"""The parsers of tool calls and reasoning that a bundle declares, as the server's defaults.

vLLM's front end takes the tool parser from its command line alone, the reasoning parser from there and from the
configuration, which the engine reads too. What the user gave stays.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from vllm_tt.errors import ConfigError
from vllm_tt.log import get_logger
from vllm_tt.platform.compat import configure_reasoning
from vllm_tt.platform.settled import keep, state_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from vllm.config import VllmConfig

    from vllm_tt.models.entry import Entry

__all__ = ["UnknownParser", "declare", "hand_over"]

log = get_logger(__name__)

_STATE = "tool_parser"


class UnknownParser(ConfigError):
    """{owner} declares the {kind} parser {name!r}, which vLLM does not have. {nearest} Choose another with {flag}, or
    correct serving.{kind}_parser in the bundle's vllm_metadata.json.
    """


def declare(config: VllmConfig, entry: Entry) -> str | None:
    """Settle what the bundle of ``entry`` declares; a line for the log, or None where nothing came of it.

    The tool parser is kept for ``hand_over``: only a server has use for it.
    """
    if entry.bundle is None or config.model_config.skip_tokenizer_init:
        return None
    serving = entry.bundle.metadata.serving
    if serving.tool_parser:
        keep(config, **{_STATE: [entry.origin, serving.tool_parser]})
    outputs = config.structured_outputs_config
    if not serving.reasoning_parser or outputs.reasoning_parser:
        return None
    from vllm.reasoning import ReasoningParserManager

    known = ReasoningParserManager.list_registered()
    _check(entry.origin, "reasoning", serving.reasoning_parser, known, "--reasoning-parser")
    outputs.reasoning_parser = serving.reasoning_parser
    configure_reasoning(config, serving.reasoning_parser)
    return f"reasoning is split off by the parser {serving.reasoning_parser}, which {entry.origin} declares"


def hand_over(config: VllmConfig, arguments: argparse.Namespace) -> None:
    """Give a server's parsed command line what was settled, before the server reads it."""
    arguments.structured_outputs_config.reasoning_parser = config.structured_outputs_config.reasoning_parser
    if not hasattr(arguments, "tool_call_parser"):
        return  # not a server of the chat API
    wanted, arguments.enable_auto_tool_choice = (
        arguments.enable_auto_tool_choice,
        bool(arguments.enable_auto_tool_choice),
    )
    owner, name = state_of(config).get(_STATE, (None, None))
    if name is None or wanted is not None or arguments.tool_call_parser:
        return
    from vllm.tool_parsers import ToolParserManager

    known = ToolParserManager.list_registered()
    _check(owner, "tool", name, known, "--enable-auto-tool-choice --tool-call-parser, or --no-enable-auto-tool-choice")
    arguments.enable_auto_tool_choice, arguments.tool_call_parser = True, name
    log.info("tool calls are read by the parser %s, which %s declares; automatic tool choice is on", name, owner)


def _check(owner: str, kind: str, name: str, known: Sequence[str], flag: str) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    nearest = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(known)}."
    raise UnknownParser(owner=owner, kind=kind, name=name, nearest=nearest, flag=flag)
