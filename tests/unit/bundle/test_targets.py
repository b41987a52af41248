import pytest
from bundle_cases import ROOT

from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.targets import reports_for, reports_for_variable, without_mark
from vllm_tt.bundle.validate import Depth

GOOD = ROOT / "valid/two-keys"
ADAPTER = (GOOD / "adapter.py").read_text()


@pytest.fixture
def add(add, tmp_path):
    def make(folder, **fields):
        place = add(folder, **fields)
        (place / "adapter.py").write_text(ADAPTER)
        return place

    return make


def folders(reports):
    return [str(one.folder) for one in reports]


def test_a_bundle_a_file_in_it_and_a_folder_of_them(add, tmp_path, monkeypatch):
    add("bundles/a")
    add("bundles/b")
    (tmp_path / "bundles/a/tt").mkdir()
    (tmp_path / "bundles/a/tt/helper.py").touch()
    monkeypatch.chdir(tmp_path)
    for path in ("bundles/a", "bundles/a/vllm_metadata.json", "bundles/a/adapter.py", "bundles/a/tt/helper.py"):
        assert folders(reports_for([path], Depth())) == ["bundles/a"]
    assert folders(reports_for(["bundles/a", "bundles/a/adapter.py"], Depth())) == ["bundles/a"]
    assert folders(reports_for(["bundles"], Depth())) == ["bundles/a", "bundles/b"]
    assert folders(reports_for([str(tmp_path / "bundles/b/adapter.py")], Depth())) == [str(tmp_path / "bundles/b")]


def test_only_with_every_are_they_held_against_one_another(add, tmp_path):
    add("a")
    add("b")
    for every, severities in ((False, set()), (True, {Severity.ERROR})):
        reports = reports_for([str(tmp_path)], Depth(), every=every)
        assert {one.severity for report in reports for one in report.findings} - {Severity.NOTE} == severities


def test_a_path_that_is_nothing(tmp_path):
    (report,) = reports_for([str(tmp_path / "gone")], Depth())
    assert [one.code for one in report.findings] == ["TB001"]
    (tmp_path / "a.txt").touch()
    (report,) = reports_for([str(tmp_path / "a.txt")], Depth())
    assert [one.code for one in report.findings] == ["TB004"]


def test_the_folders_of_the_variable(add, tmp_path, monkeypatch):
    add("one/a", arch="AForCausalLM")
    add("two/b", arch="BForCausalLM")
    value = f"{tmp_path}/one:{tmp_path}/two/"
    assert folders(reports_for_variable(value, Depth())) == [f"{tmp_path}/one/a", f"{tmp_path}/two/b"]
    monkeypatch.chdir(tmp_path)
    first, second = reports_for_variable("'one'", Depth())
    assert [one.message for one in first.findings] == [f"EXTRA_MODELS_DIR=\"'one'\" is read as {tmp_path}/one"]
    assert (first.is_bundle, second.folder) == (False, tmp_path / "one/a")


def test_a_mark_is_removed_and_nothing_else(add):
    folder = add("a")
    path = folder / "vllm_metadata.json"
    data = path.read_bytes()
    assert not without_mark(folder)
    path.write_bytes(b"\xef\xbb\xbf" + data)
    path.chmod(0o640)
    assert without_mark(folder)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (data, 0o640)
    assert sorted(one.name for one in folder.iterdir()) == ["adapter.py", "vllm_metadata.json"]
