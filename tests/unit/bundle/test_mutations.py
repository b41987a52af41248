"""Random damage. ``TT_FUZZ=10000`` runs as many mutations of the metadata; a few hundred otherwise."""

import os
import time

import pytest
from bundle_cases import ROOT
from mutations import mutated, mutated_source

from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.reading import Bundle, load
from vllm_tt.bundle.validate import validate

COUNT = int(os.environ.get("TT_FUZZ", "400"))
BATCH = max(COUNT // 8, 1)
SEEDS = ["valid/full", "valid/launch-map", "valid/three-architectures", "invalid/wrong-limits"]
ADAPTERS = ["valid/every-method", "valid/base-in-the-bundle", "valid/decorated"]


def check(folder, what):
    started = time.perf_counter()
    found = load(folder)
    report = validate(folder)
    assert time.perf_counter() - started < 20, what
    decisive = [
        one.code
        for one in report.findings
        if one.severity is Severity.ERROR and one.code.startswith(("TB0", "TB1", "TB2"))
    ]
    assert isinstance(found, Bundle) == (not decisive), what
    for one in report.findings:
        assert (one.message + one.hint).isprintable(), what
        assert "hf_Ab1" not in one.message + one.hint, what
    if not isinstance(found, Bundle):
        assert found.warning.isprintable(), what


@pytest.mark.parametrize("start", range(0, COUNT, BATCH))
def test_damaged_metadata(tmp_path, start):
    data = [(ROOT / case / "vllm_metadata.json").read_bytes() for case in SEEDS]
    (tmp_path / "adapter.py").write_bytes((ROOT / "valid/two-keys/adapter.py").read_bytes())
    for seed in range(start, min(start + BATCH, COUNT)):
        (tmp_path / "vllm_metadata.json").write_bytes(mutated(data[seed % len(data)], seed))
        check(tmp_path, seed)


@pytest.mark.parametrize("case", ADAPTERS)
def test_damaged_adapters(tmp_path, case):
    source = ROOT / case
    files = {path.relative_to(source): path.read_text() for path in source.rglob("*.py")}
    for path in (source / "vllm_metadata.json", *(source / one for one in files)):
        (tmp_path / path.relative_to(source)).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path.relative_to(source)).write_bytes(path.read_bytes())
    for seed in range(COUNT // 8):
        for path, text in files.items():
            (tmp_path / path).write_text(mutated_source(text, seed))
        check(tmp_path, seed)
