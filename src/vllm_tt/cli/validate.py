"""``tt-bundle validate``: everything that is wrong with bundles, for authors and for checks of their repositories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from vllm_tt import env
from vllm_tt.bundle.findings import RULES, Severity
from vllm_tt.bundle.targets import reports_for, reports_for_variable, without_mark
from vllm_tt.bundle.validate import UNSEEN, Depth, chosen
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.cli.verdict import document, github_lines, text_lines
from vllm_tt.errors import ConfigError
from vllm_tt.models.builtin_table import BUILTINS, VARIANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.bundle.validate import Report

__all__ = ["NothingToValidate", "command"]


class NothingToValidate(ConfigError):
    """Name a bundle's folder, a folder of bundles, or use --all for those in EXTRA_MODELS_DIR (which is not set)."""


def _codes(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    codes = tuple(one.strip().upper() for value in values for one in value.split(",") if one.strip())
    for code in codes:
        if not any(known.startswith(code) for known in RULES):
            message = f"no code begins with {code!r}; 'tt-bundle explain' lists them."
            raise click.BadParameter(message)
    return codes


@dataclass(frozen=True, kw_only=True)
class _Asked:
    every: bool
    imports: bool
    import_timeout: float
    installed: bool
    strict: bool
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    fix: bool
    form: str


@click.command("validate")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--all", "every", is_flag=True, help="PATHs are folders of bundles (EXTRA_MODELS_DIR when none is given)."
)
@click.option("--import", "imports", is_flag=True, help="Import the adapter too, in a process of its own.")
@click.option("--import-timeout", type=click.FloatRange(min=0.1), default=60, show_default=True, metavar="SECONDS")
@click.option("--installed", is_flag=True, help="Judge by what is installed here: what is missing is an error.")
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@click.option("--select", multiple=True, callback=_codes, metavar="CODE,...", help="Only codes that begin so.")
@click.option("--ignore", multiple=True, callback=_codes, metavar="CODE,...", help="No codes that begin so.")
@click.option("--fix", is_flag=True, help="Remove byte-order marks, which changes nothing else.")
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
@json_option
@click.pass_context
def command(context: click.Context, /, paths: tuple[str, ...], **asked: Any) -> None:
    """Check bundles: metadata, module, adapter class and what it declares. Imports nothing unless asked.

    PATH is a bundle's folder, a file in one, or a folder of bundles. Exits with 1 when there is an
    error (a warning under --strict), with 4 when something cannot be read.
    """
    options = _Asked(**asked)
    reports = _reports(paths, options)
    fixed = [one.folder for one in reports if options.fix and one.is_bundle and without_mark(one.folder)]
    if fixed:
        reports = _reports(paths, options)
    reports = [replace(one, findings=chosen(one.findings, options.select, options.ignore)) for one in reports]
    code = _exit(reports, strict=options.strict)
    session().json |= options.form == "json"
    for folder in fixed:
        click.echo(f"removed the byte-order mark of {folder}/vllm_metadata.json", err=True)
    lines = github_lines(reports) if options.form == "github" else text_lines(reports, strict=options.strict)
    content = document(reports, strict=options.strict) | {"fixed": [str(folder) for folder in fixed]}
    answer(lines, content, ok=code is Exit.OK)
    context.exit(code)


def _reports(paths: tuple[str, ...], options: _Asked) -> list[Report]:
    depth = Depth(
        installed=options.installed,
        import_seconds=options.import_timeout if options.imports else None,
        builtins={one.arch: one.variants[one.default].main_class for one in BUILTINS},
        generators=frozenset(VARIANTS),
    )
    if paths:
        return reports_for(paths, depth, every=options.every)
    value = env.EXTRA_MODELS_DIR.get() if options.every else None
    if value is None:
        raise NothingToValidate
    return reports_for_variable(value, depth)


def _exit(reports: Sequence[Report], *, strict: bool) -> Exit:
    found = [one for report in reports for one in report.findings]
    if any(one.code in UNSEEN for one in found):
        return Exit.LOCAL_IO
    fatal = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return Exit.FINDINGS if any(one.severity in fatal for one in found) else Exit.OK
