"""The house rules that a machine can check: import ranks, module and function sizes."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "vllm_tt"

RANKS = [
    {"errors", "log", "_version"},
    {"_data", "contract", "mesh", "telemetry"},
    {"env"},
    {"bundle", "config", "emulation", "observe"},
    {"host", "models", "platform.compat", "platform.settled", "platform.lanes"},
    {"platform", "scheduler"},
    {"batch"},
    {"sampling"},
    {"demo", "doctor", "worker"},
    {"conformance"},
    {"cli"},
]
"""Packages and modules, lowest rank first: each may import only from lower ranks."""

ORDER = {
    "emulation": ["descriptors", "runtime_root", "environment", "stand_ins"],
    "bundle": [
        "secrets",
        "findings",
        "jsontext",
        "fields",
        "names",
        "metadata",
        "requires",
        "schema",
        "reading",
        "discover",
        "paths",
        "ignore",
        "files",
        "lock",
        "install",
        "compression",
        "tarball",
        "archive",
        "pack",
        "unpack",
        "locate",
        "scaffold",
        "launch",
        "source",
        "declared",
        "code",
        "vllm_names",
        "facts",
        "adapter_source",
        "imported",
        "checks",
        "validate",
        "targets",
        "explain",
        "hub",
        "inspection",
        "difference",
        "removal",
    ],
    "observe": ["steps", "summary", "advice", "timeline", "page", "picture", "scrape", "live"],
    "host": [
        "frequencies",
        "rotary",
        "norm",
        "mlp",
        "experts",
        "kv_cache",
        "step",
        "slot_state",
        "delta_net",
        "attention",
        "vision",
        "mrope",
        "image_prompts",
        "checkpoint",
        "weights",
        "row_params",
        "draw",
        "history",
        "sampler",
        "resident",
        "device",
        "adapter",
    ],
    "models": [
        "loader",
        "builtin",
        "builtin_table",
        "entry",
        "probe",
        "facade",
        "publish",
        "resolve",
        "inventory",
        "registry",
        "serving",
    ],
    "platform": [
        "compat",
        "settled",
        "lanes",
        "discovery",
        "ranks",
        "parsers",
        "ending",
        "refusals",
        "multimodal",
        "policies",
        "report",
        "metrics",
        "leaving",
        "inherited",
        "engine_start",
        "settle",
        "arguments",
        "platform",
    ],
    "scheduler": [
        "record",
        "plan",
        "slots",
        "images",
        "interleave",
        "merge",
        "step",
        "balance",
        "lane_log",
        "step_log",
        "ledger",
        "phase",
        "lanes",
    ],
    "batch": ["images", "requests", "sampling_rows", "rows", "step_input", "build"],
    "sampling": [
        "argmax",
        "candidates",
        "noise",
        "draw",
        "penalties",
        "plain",
        "kept",
        "loaded",
        "metadata",
        "vllm_sampler",
        "grammar",
        "logprobs",
        "host",
        "policy",
        "device",
        "processors",
        "combine",
    ],
    "demo": ["gguf_model", "tokenizer", "checkpoint", "server", "ask", "run"],
    "worker": [
        "mesh_settings",
        "signals",
        "device",
        "device_groups",
        "kv_groups",
        "kv_cache",
        "reloads",
        "overlap",
        "outputs",
        "forward",
        "async_steps",
        "results",
        "sampling_step",
        "decoding",
        "model_runner",
        "worker",
    ],
    "conformance": [
        "report",
        "request",
        "faults",
        "sampled",
        "layers",
        "rig",
        "pages",
        "compare",
        "scores",
        "cases",
        "bench",
        "workloads",
        "check_row",
        "family_checks",
        "device_run",
        "device_checks",
        "control_checks",
        "lane_checks",
        "checks",
        "coverage",
        "tries",
        "memory",
        "operations",
        "loading",
        "sequence",
        "child",
        "check",
    ],
    "doctor": ["item", "installed", "settings", "device", "examine"],
    "cli": [
        "exits",
        "report",
        "builtin_lines",
        "progress",
        "remarks",
        "ending",
        "shipping",
        "pack",
        "unpack",
        "verify",
        "lock",
        "inspect",
        "diff",
        "rm",
        "pull",
        "push",
        "schema",
        "list",
        "verdict",
        "validate",
        "explain",
        "demo",
        "new",
        "check",
        "serve",
        "doctor",
        "steps",
        "top",
        "group",
    ],
}
"""Within a package, a module may import only from those above it."""

ENTRY = "entrypoints"
"""Named in pyproject: imports whatever it wants, in bodies."""

MAX_LINES, MAX_FUNCTION, MAX_PARAMETERS = 400, 60, 6

MODULES = sorted(SRC.rglob("*.py"))


def name_of(path):
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rank_of(name):
    """The rank of the longest listed prefix of a module's name; None for the package itself."""
    while name:
        for rank, names in enumerate(RANKS):
            if name in names:
                return rank
        name = name.rpartition(".")[0]
    return None


def imports_of(path):
    """Every module of ours that ``path`` imports, TYPE_CHECKING imports included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if (node.module or "").partition(".")[0] == "vllm_tt":
                base = (node.module or "").removeprefix("vllm_tt").lstrip(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield (
                        inner
                        if (SRC / inner.replace(".", "/")).with_suffix(".py").exists()
                        or (SRC / inner.replace(".", "/")).is_dir()
                        else base
                    )
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("vllm_tt.") for a in node.names if a.name.startswith("vllm_tt."))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down(path):
    name = name_of(path)
    if name in ("", ENTRY):
        return
    mine = rank_of(name)
    assert mine is not None, f"{name} has no rank"
    for target in imports_of(path):
        theirs = rank_of(target)
        if target == "" or theirs is None:
            assert target in ("", "_version"), f"{name} imports {target}, which has no rank"
        elif target.partition(".")[0] == name.partition(".")[0] and theirs == mine:
            assert goes_up_within(name, target), f"{name} imports {target}, which is not above it"
        else:
            assert theirs < mine, f"{name} (rank {mine}) imports {target} (rank {theirs})"


def goes_up_within(name, target):
    package, _, module = name.partition(".")
    _, _, other = target.partition(".")
    order = ORDER[package]
    if not module:  # the package's own face
        return True
    if not other:
        return False
    top, other_top = module.partition(".")[0], other.partition(".")[0]
    return top == other_top or (top in order and other_top in order and order.index(other_top) < order.index(top))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_sizes(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES, f"{path} is too long: what second thing does it do?"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{name_of(path)}.{node.name} has {length} lines"


def test_every_module_has_a_docstring():
    missing = [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert missing == ["_version"]
