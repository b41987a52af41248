"""``tt-bundle new``: a bundle from a template."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from vllm_tt.bundle.names import registered_name
from vllm_tt.bundle.scaffold import TEMPLATES, NewBundle, files, write
from vllm_tt.cli.report import answer, json_option
from vllm_tt.errors import ConfigError
from vllm_tt.models.builtin_table import BUILTINS

__all__ = ["NotBuiltIn", "command"]


class NotBuiltIn(ConfigError):
    """tt-metal has no generator for {arch}.{near} 'tt-bundle list --builtin' shows what it has."""


@click.command("new")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--arch", required=True, help="Architecture, as checkpoints name it: LlamaForCausalLM.")
@click.option("--name", help="Name of the bundle; the folder's by default.")
@click.option(
    "--template", type=click.Choice(list(TEMPLATES)), default="host", show_default=True, help="What to start from."
)
@click.option("--hf-weights", metavar="ORG/NAME", help="The weights that 'tt-bundle serve' takes by default.")
@click.option("--launch", is_flag=True, help="Add a launch map for older distribution tools.")
@click.option("--force", is_flag=True, help="Write into a folder that is not empty, over files of the same name.")
@json_option
def command(target: Path, name: str | None, force: bool, **choices: Any) -> None:
    r"""Make a bundle in DIR.

    \b
    host     a working adapter on the host; serves at once, on an emulated mesh too
    ttnn     a skeleton for hardware, written with ttnn operations
    builtin  metadata alone, for a generator that is part of tt-metal
    """
    main_class = _builtin_class(choices["arch"]) if choices["template"] == "builtin" else None
    new = NewBundle(name=name or target.resolve().name, main_class=main_class, **choices)
    paths = write(target, files(new), force=force)
    lines = [*(f"wrote {path}" for path in paths), f"Next: tt-bundle validate {target}"]
    answer(lines, {"folder": str(target.resolve()), "files": [path.name for path in paths]})


def _builtin_class(arch: str) -> str:
    table = {builtin.arch: builtin for builtin in BUILTINS if not builtin.test_model}
    found = table.get(registered_name(arch))
    if found is None:
        close = difflib.get_close_matches(registered_name(arch), table, n=3)
        near = f" Did you mean {' or '.join(one.removeprefix('TT') for one in close)}?" if close else ""
        raise NotBuiltIn(arch=arch, near=near)
    return found.variants[found.default].main_class
