import hashlib
import io
import os

import pytest

from vllm_tt.bundle import lock
from vllm_tt.bundle.files import Changed, select
from vllm_tt.bundle.install import DestinationExists
from vllm_tt.bundle.pack import OutputInside, default_name, pack, pack_to


@pytest.fixture
def folder(add):
    place = add("mine")
    (place / "adapter.py").write_text("class Model: pass\n")
    return place


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "mine.tar.gz"),
        ({"version": "1.0"}, "mine-1.0.tar.gz"),
        ({"name": "nice", "version": "2"}, "nice-2.tar.gz"),
        ({"name": "nice", "version": "../2"}, "nice.tar.gz"),
        ({"name": "../../x"}, "mine.tar.gz"),
    ],
)
def test_names(add, fields, name):
    folder = add("mine", **fields)
    assert default_name(select(folder), folder) == name


def test_the_name_of_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert default_name(select(folder), folder.relative_to(folder)) == "mine.tar.gz"


def test_what_was_packed(folder, tmp_path):
    told = []
    packed = pack_to(select(folder), tmp_path / "out.tar.gz", progress=told.append)
    data = (tmp_path / "out.tar.gz").read_bytes()
    assert (packed.size, packed.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert packed.lock == lock.make(select(folder))
    assert sum(told) == select(folder).size
    out = io.BytesIO()
    assert pack(select(folder), out) == packed
    assert out.getvalue() == data


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_archive_has_the_mode_of_any_new_file(folder, tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        pack_to(select(folder), tmp_path / "out.tar.gz")
    finally:
        os.umask(before)
    assert (tmp_path / "out.tar.gz").stat().st_mode & 0o777 == mode


def test_inside_the_bundle(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OutputInside) as raised:
        pack_to(select(folder), tmp_path / "link" / "out.tar.gz")
    assert str(raised.value) == (
        f"The output {tmp_path}/link/out.tar.gz would be inside the bundle. Name a place outside of {folder} with -o."
    )


def test_only_archives_are_replaced_unasked(folder, tmp_path):
    out = tmp_path / "out.tar.gz"
    pack_to(select(folder), out)
    (folder / "adapter.py").write_text("class Model:\n    x = 1\n")
    before = out.read_bytes()
    pack_to(select(folder), out)
    assert out.read_bytes() != before
    out.write_text("notes")
    with pytest.raises(DestinationExists) as raised:
        pack_to(select(folder), out)
    assert str(raised.value) == "'out.tar.gz' exists; use --force to replace it"
    assert out.read_text() == "notes"
    pack_to(select(folder), out, force=True)
    assert out.read_bytes() != b"notes"


def test_a_folder_is_not_replaced(folder, tmp_path):
    (tmp_path / "out.tar.gz").mkdir()
    with pytest.raises(DestinationExists):
        pack_to(select(folder), tmp_path / "out.tar.gz", force=True)


def test_a_failure_leaves_the_old_archive_and_nothing_else(folder, tmp_path):
    out = tmp_path / "out.tar.gz"
    pack_to(select(folder), out)
    before = out.read_bytes()
    selection = select(folder)
    (folder / "adapter.py").write_text("class Model:\n    x = 1\n")
    with pytest.raises(Changed):
        pack_to(selection, out)
    assert out.read_bytes() == before

    def interrupt(_read):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_to(select(folder), out, progress=interrupt)
    assert out.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out.tar.gz"]
