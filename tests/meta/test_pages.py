"""The pages point to what exists, and name only options and variables that are read."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from vllm_tt.config import TTConfig
from vllm_tt.env import VARIABLES

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "bundles").glob("*/README.md")])
}
OF_OTHERS = {
    "TT_LOGGER_LEVEL",
    "TT_MESH_PASS_THROUGH_THREAD_POOL",
    "TT_METAL_CACHE",
    "TT_METAL_DISABLE_BACKTRACE",
    "TT_METAL_LOGGER_LEVEL",
    "TT_METAL_LOGS_PATH",
    "TT_METAL_MOCK_CLUSTER_DESC_PATH",
    "TT_METAL_RUNTIME_ROOT",
    "TT_METAL_SHM_TRACKING_DISABLED",
}
"""Variables that tt-metal reads."""


@pytest.mark.parametrize("name", PAGES)
def test_links_within_the_repository_lead_somewhere(name):
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)[^)]*\)", PAGES[name])
    folder = (ROOT / name).parent
    assert [target for target in targets if not (folder / target).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_named_variables_and_options_are_read(name):
    variables = set(re.findall(r"\bTT_[A-Z0-9_]*[A-Z0-9]\b(?!\*|_)", PAGES[name])) - OF_OTHERS
    assert variables - {one.name for one in VARIABLES} == set()
    options = re.findall(r"(?:--additional-config\.|[`\s(])tt\.([a-z_0-9]+)(?=[`\s,;).:])", PAGES[name])
    assert set(options) - {one.name for one in fields(TTConfig)} == set()


def test_the_readme_leads_to_every_page_and_bundle():
    targets = set(re.findall(r"\]\((docs/[^)#]+|bundles/[^)/#]+)", PAGES["README.md"]))
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    bundles = {f"bundles/{path.parent.name}" for path in (ROOT / "bundles").glob("*/vllm_metadata.json")}
    assert pages | bundles <= targets
