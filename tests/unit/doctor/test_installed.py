import pytest

from vllm_tt import __version__
from vllm_tt.doctor.installed import entry_points, packages

POINTS = """[vllm.platform_plugins]
tt = vllm_tt.entrypoints:platform_plugin

[vllm.general_plugins]
tt = vllm_tt.entrypoints:register

[vllm.stat_logger_plugins]
tt = vllm_tt.platform.metrics:TTStatLogger
"""


@pytest.fixture
def site(tmp_path):
    """``site(folder, **versions)``: a folder of installed packages; a version of "" leaves no record."""

    def make(name, **versions):
        for module, version in versions.items():
            (tmp_path / name / module).mkdir(parents=True)
            (tmp_path / name / module / "__init__.py").write_text("raise ImportError('never imported')")
            if version:
                record(tmp_path / name, module, version)
        return str(tmp_path / name)

    return make


def record(folder, module, version, points=""):
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)


def told(items):
    return [(item.topic, item.level, item.found) for item in items if item.topic != "vllm-tt"]


def test_what_works(site):
    place = site("a", vllm="0.33.0+empty", ttnn="0.81.1", torch="2.11.0")
    assert told(packages([place])) == [
        ("vllm", "ok", f"0.33.0+empty in {place}/vllm"),
        ("ttnn", "ok", f"0.81.1 in {place}/ttnn"),
        ("torch", "ok", f"2.11.0 in {place}/torch"),
        ("torchvision", "note", "not installed"),
    ]


def test_nothing_at_all(tmp_path):
    items = list(packages([str(tmp_path)]))
    assert told(items) == [
        *[(name, "problem", "not installed") for name in ("vllm", "ttnn", "torch")],
        ("torchvision", "note", "not installed"),
    ]
    assert all(item.remedy for item in items[1:])


@pytest.mark.parametrize("version", ["0.25.0", "0.24.9", "0.33.1", "1.0"])
def test_releases_of_vllm_outside_the_window(site, version):
    place = site("a", vllm=version, ttnn="0.81.1", torch="2")
    (item,) = [item for item in packages([place]) if item.level == "problem"]
    assert item.found == f"{version} in {place}/vllm"
    assert item.remedy == f"vllm-tt {__version__} works with vllm>=0.25.1,<=0.33.0: install one of these."


@pytest.mark.parametrize("version", ["0.25.1", "0.26.0.dev3", "0.33.0"])
def test_releases_of_vllm_inside_it(site, version):
    place = site("a", vllm=version, ttnn="0.75", torch="2", torchvision="0.26")
    assert all(item.level == "ok" for item in packages([place]))


def test_a_checkout_has_no_version(site):
    place = site("a", vllm="0.26.0", ttnn="", torch="2")
    assert ("ttnn", "note", f"{place}/ttnn, of unknown version") in told(packages([place]))


def test_a_second_copy(site):
    first, second = site("a", vllm="0.26.0", ttnn="0.81.1", torch="2"), site("b", vllm="0.30.0")
    found = told(packages([first, second, first]))
    assert ("vllm", "problem", f"found twice: {first}/vllm is used, not {second}/vllm") in found
    assert [level for _, level, _ in found].count("problem") == 1


def test_entry_points(tmp_path):
    record(tmp_path, "vllm_tt", "1", POINTS)
    assert [item.level for item in entry_points([str(tmp_path)])] == ["ok", "ok", "ok"]


def test_missing_and_foreign_entry_points(tmp_path):
    record(tmp_path, "other", "1", "[vllm.platform_plugins]\nnpu = other:plugin\n")
    assert [(item.level, item.found) for item in entry_points([str(tmp_path)])] == [
        ("problem", "vllm.platform_plugins has no tt = vllm_tt.entrypoints:platform_plugin"),
        ("problem", "vllm.general_plugins has no tt = vllm_tt.entrypoints:register"),
        ("problem", "vllm.stat_logger_plugins has no tt = vllm_tt.platform.metrics:TTStatLogger"),
        ("note", "another platform plugin: npu = other:plugin"),
    ]
