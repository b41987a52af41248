"""The server's command line: a default of ours, and options that earlier Tenstorrent servers had."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RETIRED_MESSAGE", "add_retired", "prefer_one_front_end", "tell_no_choice"]

RETIRED = ("--override-tt-config", "--plugin-config")
RETIRED_MESSAGE = (
    '{option} is retired. Put the options under the key "tt" of --additional-config, for example '
    '--additional-config \'{{"tt": {{"trace_mode": "all"}}}}\', or give them one by one: '
    "--additional-config.tt.trace_mode all"
)


class _Retired(argparse.Action):
    """Ends parsing with the message, whatever value the option has."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002
        values: str | Sequence[Any] | None,  # noqa: ARG002
        option_string: str | None = None,
    ) -> NoReturn:
        # not parser.error, which puts the usage of some 200 options before the message
        parser.exit(2, f"{parser.prog}: error: {RETIRED_MESSAGE.format(option=option_string)}\n")


def add_retired(parser: argparse.ArgumentParser) -> None:
    """Recognise the retired options without showing them in the help; a parser may come by twice."""
    for option in RETIRED:
        with contextlib.suppress(argparse.ArgumentError):
            parser.add_argument(option, action=_Retired, nargs="?", help=argparse.SUPPRESS)


def prefer_one_front_end(parser: argparse.ArgumentParser) -> None:
    """One API server unless --api-server-count says otherwise.

    vLLM starts one for each unit of --data-parallel-size, before it is known that they become lanes of one engine.
    """
    parser.set_defaults(api_server_count=1)


def tell_no_choice(parser: argparse.ArgumentParser) -> None:
    """Have a command line that does not say how tools are chosen leave None, not the False of one that says so."""
    if parser.get_default("enable_auto_tool_choice") is not None:
        parser.set_defaults(enable_auto_tool_choice=None)
