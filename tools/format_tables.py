"""Writes tables of the pages in docs/ from the code.

``python tools/format_tables.py [--check]``

Each stands between ``<!-- NAME: ... -->`` and ``<!-- end of NAME -->``.
"""

import json
import re
import sys
from dataclasses import fields
from pathlib import Path

from vllm_tt.bundle.checks.capabilities import KNOWN
from vllm_tt.bundle.explain import EXPLANATIONS
from vllm_tt.bundle.findings import RULES, Reader
from vllm_tt.cli.builtin_lines import builtin_details
from vllm_tt.config import TTConfig
from vllm_tt.contract import CALLS
from vllm_tt.env import VARIABLES
from vllm_tt.models.builtin import meshes_text
from vllm_tt.models.inventory import builtin_rows
from vllm_tt.telemetry import FAMILIES, GAUGES, PREFIX

DOCS = Path(__file__).parents[1] / "docs"
SERVING = {Reader.SKIP: "skipped", Reader.WARN: "served, with a warning", Reader.INFO: "served", Reader.QUIET: "served"}
WORDS = {bool: "true or false", int: "integer", tuple: "tuple", dict: "dict", str: "string"}


def row(*cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def codes():
    yield row("code", "severity", "a bundle with it is", "what is wrong", "what to do")
    yield row(*["---"] * 5)
    for code, rule in RULES.items():
        serving = SERVING[rule.reader] if code < "TB8" else "-"
        yield row(code, rule.severity.value, serving, rule.title, EXPLANATIONS[code].fix)


def calls():
    yield row("method", "called on", "by position", "by name, always", "by name, sometimes", "needed")
    yield row(*["---"] * 6)
    for call in CALLS:
        sometimes = "; ".join(f"`{name}` ({condition})" for name, condition in call.sometimes.items())
        yield row(
            f"`{call.method}`",
            "the class" if call.on_class else "the instance",
            names(call.always[: call.positional]),
            names(call.always[call.positional :]),
            sometimes or "-",
            call.needed or "optional",
        )


def names(parameters):
    return ", ".join(f"`{name}`" for name in parameters) or "-"


def capabilities():
    yield row("key", "type")
    yield row("---", "---")
    for key, kind in KNOWN.items():
        yield row(f"`{key}`", WORDS[kind])


def builtins():
    yield row("models", "registered name", "class", "meshes", "served", "what it takes")
    yield row(*["---"] * 6)
    for one in builtin_rows():
        yield row(
            one.models,
            f"`{one.arch}`",
            f"`{one.main_class}`",
            meshes_text(one.meshes),
            f"{one.served}, in lanes" if one.lanes else one.served,
            ". ".join(builtin_details(one)),
        )


def options():
    yield row("option", "value", "default", "what it does")
    yield row(*["---"] * 4)
    for option in fields(TTConfig):
        default = "-" if option.default is None else f"`{json.dumps(option.default)}`"
        yield row(f"`tt.{option.name}`", option.metadata["kind"].expected, default, option.metadata["help"])


def variables():
    yield row("variable", "value", "unset", "what it does")
    yield row(*["---"] * 4)
    for variable in VARIABLES:
        yield row(f"`{variable.name}`", variable.expected, variable.otherwise, variable.help)


def metrics():
    yield row("metric", "label", "what it is")
    yield row("---", "---", "---")
    for family in FAMILIES:
        yield row(f"`{PREFIX}{family.name}_total`", f"`{family.label}`" if family.label else "-", family.help)
    for gauge in GAUGES:
        yield row(f"`{PREFIX}{gauge.name}`", "`lane`", gauge.help)


PAGES = {
    "bundle-format.md": {"codes": codes, "calls": calls, "capabilities": capabilities},
    "models.md": {"builtins": builtins},
    "configuration.md": {"options": options, "variables": variables},
    "observability.md": {"metrics": metrics},
}


def page(name, text):
    """The page with its tables written anew."""
    for table, lines in PAGES[name].items():
        pattern = re.compile(rf"(<!-- {table}: [^>]*-->\n).*?(<!-- end of {table} -->)", re.DOTALL)
        body = "\n" + "\n".join(lines()) + "\n\n"
        text, count = pattern.subn(lambda found, body=body: found[1] + body + found[2], text)
        if count != 1:
            sys.exit(f"{name}: {count} places for the table {table!r}")
    return text


def main():
    for name in PAGES:
        path = DOCS / name
        old = path.read_text(encoding="utf-8")
        new = page(name, old)
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
        elif new != old:
            sys.exit(f"{path} is not what the code says: run python tools/format_tables.py")


if __name__ == "__main__":
    main()
