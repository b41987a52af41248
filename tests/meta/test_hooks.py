"""The hooks that repositories of bundles use exist as commands, and see the files that they are for."""

import re
import shlex
from pathlib import Path

import yaml
from click.testing import CliRunner

from vllm_tt.cli import main

ROOT = Path(__file__).parents[2]
HOOKS = {one["id"]: one for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


def test_each_hook_says_what_it_must():
    for hook in HOOKS.values():
        assert {"id", "name", "entry", "language", "files"} <= set(hook)
        assert shlex.split(hook["entry"])[0] == "tt-bundle"


def test_which_files_they_are_for():
    files = {
        "bundles/a/vllm_metadata.json": {"tt-bundle-validate", "tt-bundle-validate-all"},
        "vllm_metadata.json": {"tt-bundle-validate", "tt-bundle-validate-all"},
        "bundles/a/adapter.py": {"tt-bundle-validate-all"},
        "bundles/a/my_vllm_metadata.json.txt": set(),
        "README.md": set(),
    }
    for file, ids in files.items():
        assert {id_ for id_, hook in HOOKS.items() if re.search(hook["files"], file)} == ids


def test_they_run_on_the_shipped_bundles():
    given = {"tt-bundle-validate": ["bundles/llama-host/vllm_metadata.json"], "tt-bundle-validate-all": ["bundles"]}
    for id_, hook in HOOKS.items():
        paths = [str(ROOT / path) for path in given[id_]]
        _, *arguments = shlex.split(hook["entry"])
        result = CliRunner().invoke(main, [*arguments, *paths])
        assert result.exit_code == 0, result.output
