"""``tt-bundle serve``: one bundle, as one `vllm serve` command."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from vllm_tt import env
from vllm_tt.bundle.hub.places import install_folder
from vllm_tt.bundle.locate import locate
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.errors import TTError
from vllm_tt.models.serving import ServeCommand, serve_command

__all__ = ["VllmMissing", "command"]


class VllmMissing(TTError):
    """The command vllm is neither beside {python} nor on PATH: install vLLM there, or see the command with --print."""


@click.command("serve", context_settings={"ignore_unknown_options": False})
@click.argument("bundle", metavar="NAME|DIR")
@click.argument("words", metavar="[-- VLLM_ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", help="Checkpoint folder or Hub id, instead of the bundle's own weights.")
@click.option("--print", "show", is_flag=True, help="Show the command and do not run it.")
@json_option
def command(bundle: str, words: tuple[str, ...], model: str | None, show: bool) -> None:
    """Serve a bundle: a folder, or a name under EXTRA_MODELS_DIR.

    What follows "--" goes to `vllm serve` and wins over what the bundle declares: its weights, limits and serving
    options, and the launch entry of this machine. With --json the command is shown, not run.
    """
    found = locate(bundle, env.EXTRA_MODELS_DIR.get() or str(install_folder()))
    made = serve_command(found, model=model, words=words, environ=os.environ)
    for note in made.notes:
        click.echo(f"tt-bundle: note: {note}", err=True)
    if show or session().json:
        answer([made.line], {"command_line": made.line, "words": list(made.words), "environ": dict(made.environ)})
        return
    click.echo(made.line, err=True)
    _run(made)


def _run(made: ServeCommand) -> None:
    beside = Path(sys.executable).with_name("vllm")
    program = str(beside) if beside.exists() else shutil.which("vllm")
    if program is None:
        raise VllmMissing(python=sys.executable)
    environ = {name: value for name, value in os.environ.items() if name not in made.unset}
    sys.stdout.flush()
    os.execve(program, list(made.words), environ | dict(made.environ))  # noqa: S606 - the server takes this process's place
