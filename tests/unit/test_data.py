import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_tt._data import DataMissing, data_path

PACKAGE = Path(__file__).parents[2] / "src" / "vllm_tt"


def test_a_checkout_has_its_files_at_the_root():
    assert data_path("schemas/vllm_metadata.schema.json") == PACKAGE.parents[1] / "schemas/vllm_metadata.schema.json"
    assert data_path("bundles").is_dir()


def test_an_installation_has_them_in_the_package(tmp_path):
    for name in ("__init__.py", "_version.py", "_data.py", "errors.py"):
        (tmp_path / "vllm_tt").mkdir(exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / "vllm_tt")
    (tmp_path / "vllm_tt/_data/schemas").mkdir(parents=True)
    code = "from vllm_tt._data import data_path; print(data_path('schemas'))"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / "vllm_tt/_data/schemas")


def test_a_broken_installation_says_where_it_looked():
    with pytest.raises(DataMissing) as caught:
        data_path("nothing")
    assert str(caught.value) == (
        "The installation of vllm-tt is incomplete: 'nothing' is in none of "
        f"{PACKAGE}/_data/nothing, {PACKAGE.parents[1]}/nothing. Install it again."
    )
