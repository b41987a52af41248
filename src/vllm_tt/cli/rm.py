"""``tt-bundle rm``: remove installed bundles."""

from __future__ import annotations

import sys

import click

from vllm_tt import env
from vllm_tt.bundle.discover import folder_list
from vllm_tt.bundle.install import remove
from vllm_tt.bundle.reading import path_text
from vllm_tt.bundle.removal import installed
from vllm_tt.cli.ending import terminable
from vllm_tt.cli.report import answer, json_option
from vllm_tt.cli.shipping import counted
from vllm_tt.errors import ConfigError

__all__ = ["NoFolder", "Unconfirmed", "command"]


class NoFolder(ConfigError):
    """EXTRA_MODELS_DIR is not set: name the folder of bundle folders with --dir."""


class Unconfirmed(ConfigError):
    """Nothing was removed: add --yes to remove {what} where nobody can be asked."""


@click.command("rm")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--dir", "folder", metavar="FOLDER", help="Folder of bundle folders, instead of EXTRA_MODELS_DIR.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def command(names: tuple[str, ...], folder: str | None, yes: bool) -> None:
    """Remove bundles by the names of their folders; of a linked folder, the link alone.

    All names are looked up before anything is removed. A folder without vllm_metadata.json is no bundle.
    """
    places = folder_list(folder or env.EXTRA_MODELS_DIR.get())
    if not places:
        raise NoFolder
    found = list(dict.fromkeys(installed(name, places) for name in names))
    what = counted(len(found), "bundle")
    if not yes:
        if not sys.stdin.isatty():
            raise Unconfirmed(what=what)
        for path in found:
            click.echo(path_text(path), err=True)
        if not click.confirm(f"Remove {what}?", err=True):
            answer(["nothing was removed"], {"removed": []})
            return
    with terminable():
        for path in found:
            remove(path)
    answer((f"removed {path_text(path)}" for path in found), {"removed": [str(path) for path in found]})
