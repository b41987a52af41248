"""The command group: loads a command's module only when that command runs, and turns errors into exits."""

# ruff: noqa: ARG002 - the methods' signatures are click's

from __future__ import annotations

import importlib
import traceback
from typing import Any

import click

from vllm_tt._version import __version__
from vllm_tt.cli.exits import Exit, exit_code
from vllm_tt.cli.report import Session, failure, json_option, session
from vllm_tt.errors import TTError

__all__ = ["COMMANDS", "LazyGroup", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "new": ("vllm_tt.cli.new", "Make a bundle from a template."),
    "list": ("vllm_tt.cli.list", "List bundles, and what would be registered."),
    "check": ("vllm_tt.cli.check", "Run an adapter against the contract."),
    "pack": ("vllm_tt.cli.pack", "Pack a bundle into an archive, always of the same bytes."),
    "unpack": ("vllm_tt.cli.unpack", "Put the bundle of an archive into a folder of bundles."),
    "verify": ("vllm_tt.cli.verify", "Check a bundle's files against its lock."),
    "lock": ("vllm_tt.cli.lock", "Write the lock of a bundle's folder."),
    "inspect": ("vllm_tt.cli.inspect", "Show what a folder or archive holds."),
    "diff": ("vllm_tt.cli.diff", "Compare two bundles."),
    "rm": ("vllm_tt.cli.rm", "Remove installed bundles."),
    "push": ("vllm_tt.cli.push", "Publish a bundle in a repository of the Hub."),
    "pull": ("vllm_tt.cli.pull", "Install the bundles of a repository of the Hub."),
    "validate": ("vllm_tt.cli.validate", "Check bundles, and say everything that is wrong with them."),
    "explain": ("vllm_tt.cli.explain", "Say what a code such as TB203 means, and what to do about it."),
    "serve": ("vllm_tt.cli.serve", "Serve a bundle with vLLM."),
    "doctor": ("vllm_tt.cli.doctor", "Look for what keeps vLLM from serving on this machine."),
    "steps": ("vllm_tt.cli.steps", "Say where the time of a step log went, and draw its steps."),
    "top": ("vllm_tt.cli.top", "Show what a running server does, from its /metrics."),
    "schema": ("vllm_tt.cli.schema", "Print the JSON Schema of vllm_metadata.json."),
    "demo": ("vllm_tt.cli.demo", "Serve a small real model on an emulated mesh and ask it a question."),
}
"""Each command's module, which defines it as ``command``, and its line in the help."""


class LazyGroup(click.Group):
    """Commands from a table; the help needs none of their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        wants_json = session().json or "--json" in ctx.args  # an option of a command is not parsed yet
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if wants_json:
                session().json = True
                failure(error.format_message(), Exit.USAGE)
                ctx.exit(Exit.USAGE)
            raise
        except (TTError, OSError, KeyboardInterrupt) as error:
            code = exit_code(error)
            if code is None or isinstance(error, BrokenPipeError):
                raise
            if session().debug:
                traceback.print_exc()
            failure("interrupted" if code is Exit.INTERRUPTED else str(error), code)
            ctx.exit(code)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tt-bundle")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@json_option
@click.pass_context
def main(context: click.Context, debug: bool) -> None:
    """Model bundles for vLLM on Tenstorrent meshes: check them, list them, serve them."""
    context.ensure_object(Session).debug = debug
