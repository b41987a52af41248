"""``tt-bundle check``: run an adapter against the contract and report row by row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_tt import env
from vllm_tt.bundle.hub.places import install_folder
from vllm_tt.bundle.locate import locate
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.mesh import MESH_GRIDS

if TYPE_CHECKING:
    from vllm_tt.bundle.metadata import Metadata
    from vllm_tt.conformance.report import Report, Row
    from vllm_tt.conformance.request import Request

__all__ = ["command"]

_DEVICES = Path("/dev/tenstorrent")


@click.command("check")
@click.argument("bundle", metavar="BUNDLE")
@click.option("--model", required=True, help="Checkpoint folder or Hub id to load.")
@click.option(
    "--mesh", type=click.Choice(list(MESH_GRIDS)), help="Mesh to run on; emulated where there are no devices."
)
@click.option("--dry-run", is_flag=True, help="Emulate the mesh and check every call's shapes, not values.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), help="Dtype of the KV cache.")
@click.option("--block-size", type=click.IntRange(1), help="Tokens in a page.")
@click.option("--max-num-seqs", type=click.IntRange(1), help="Slots of the batch.")
@click.option("--max-model-len", type=click.IntRange(1), help="Longest sequence.")
@click.option(
    "--tolerance", type=click.FloatRange(0, min_open=True), help="How much logits may differ; goes by the dtype."
)
@json_option
@click.pass_context
def command(context: click.Context, /, bundle: str, **choices: Any) -> None:
    """Run the adapter of BUNDLE, a folder or a name under EXTRA_MODELS_DIR, against the contract.

    Each row says what must hold; a failed one shows the smallest case. Without --dry-run logits are compared, on
    devices or, for adapters that compute on the host, on an emulated mesh.
    """
    from vllm_tt.conformance.check import check

    found = locate(bundle, env.EXTRA_MODELS_DIR.get() or str(install_folder()))
    request = _request(str(found.folder), found.metadata, choices)
    live = not session().json
    report = check(request, _show if live else lambda _row: None)
    answer([_verdict(report)], {"request": request.to_dict(), **_content(report)}, ok=report.ok)
    context.exit(Exit.OK if report.ok else Exit.FINDINGS)


def _request(folder: str, metadata: Metadata, choices: dict[str, Any]) -> Request:
    """The choices over the bundle's own limits over the defaults."""
    from vllm_tt.conformance.request import Request

    asked = {name: value for name, value in choices.items() if value is not None}
    emulate = choices["dry_run"] or bool(os.environ.get(env.EMULATE.name)) or not _DEVICES.exists()
    mesh = choices["mesh"] or os.environ.get(env.EMULATE.name) or "N300"
    limits = metadata.limits.per_device.get(mesh, metadata.limits)
    defaults = {"block_size": 64, "max_num_seqs": 32, "max_model_len": 4096} if choices["dry_run"] else {
        "block_size": 32, "max_num_seqs": 8, "max_model_len": 256
    }  # fmt: skip
    for name in ("block_size", "max_num_seqs"):
        defaults[name] = getattr(limits, name) or getattr(metadata.limits, name) or defaults[name]
    longest = limits.max_model_len or metadata.limits.max_model_len
    if longest:
        defaults["max_model_len"] = longest if choices["dry_run"] else min(longest, 8 * defaults["block_size"])
    return Request(**{"folder": folder, "emulate": emulate, **defaults, **asked})


def _show(row: Row) -> None:
    click.echo(f"{row.status.upper():4}  {row.name:15} {row.detail}")
    if row.case:
        click.echo(f"{'':22}smallest case: {row.case}")
    if row.place:
        click.echo(f"{'':22}at {row.place}")


def _verdict(report: Report) -> str:
    failed = [row.name for row in report.rows if row.status == "fail"]
    counts = f"{report.count('pass')} passed, {len(failed)} failed, {report.count('skip')} skipped"
    return f"\n{'FAILED' if failed else 'PASSED'}: {counts}"


def _content(report: Report) -> dict[str, Any]:
    return {
        "rows": [row.to_dict() for row in report.rows],
        "facts": dict(report.facts),
        "summary": {"pass": report.count("pass"), "fail": report.count("fail"), "skip": report.count("skip")},
    }
