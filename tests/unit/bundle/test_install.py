import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

from vllm_tt.bundle import install as module
from vllm_tt.bundle.discover import discover
from vllm_tt.bundle.install import DestinationExists, install, remove, staging, tidy

METADATA = '{"arch": "LlamaForCausalLM", "main_class": "adapter:%s"}'


def fill(folder, name):
    (folder / "adapter.py").write_text(f"class {name}: pass\n")
    (folder / "vllm_metadata.json").write_text(METADATA % name)


def put(destination, name, *, force=False):
    with staging(destination) as new:
        fill(new, name)
        install(new, destination, force=force)


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def no_exchange(monkeypatch):
    """A file system that cannot exchange two names."""
    rename = module._renameat2

    def refusing(source, target, flags):
        if flags == 2:
            raise OSError(errno.EINVAL, "Invalid argument")
        rename(source, target, flags)

    monkeypatch.setattr(module, "_renameat2", refusing)


def test_a_new_folder(tmp_path):
    put(tmp_path / "bundles" / "mine", "One")
    assert listing(tmp_path / "bundles") == ["mine"]
    assert listing(tmp_path / "bundles" / "mine") == ["adapter.py", "vllm_metadata.json"]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_folder_is_open_to_readers_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        put(tmp_path / "mine", "One")
    finally:
        os.umask(before)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("there", ["folder", "empty folder", "file", "link"])
def test_nothing_is_replaced_unasked(tmp_path, there):
    place = tmp_path / "mine"
    if there.endswith("folder"):
        place.mkdir()
        (place / "x").touch() if there == "folder" else None
    else:
        place.touch() if there == "file" else place.symlink_to("nowhere")
    with pytest.raises(DestinationExists) as raised:
        put(place, "Two")
    assert str(raised.value) == "'mine' exists; use --force to replace it"
    assert raised.value.exit_code == 4
    assert listing(tmp_path) == ["mine"]


def test_replacing(tmp_path):
    put(tmp_path / "mine", "One")
    (tmp_path / "mine" / "old.py").touch()
    put(tmp_path / "mine", "Two", force=True)
    assert listing(tmp_path) == ["mine"]
    assert listing(tmp_path / "mine") == ["adapter.py", "vllm_metadata.json"]
    assert "Two" in (tmp_path / "mine" / "adapter.py").read_text()


def test_replacing_where_names_cannot_be_exchanged(tmp_path, no_exchange):
    test_replacing(tmp_path)


def test_force_is_fine_where_nothing_is(tmp_path):
    put(tmp_path / "mine", "One", force=True)
    assert listing(tmp_path) == ["mine"]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    fill(tmp_path / "elsewhere", "Other")
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / "mine").symlink_to(tmp_path / "elsewhere")
    put(tmp_path / "bundles" / "mine", "Two", force=True)
    assert not (tmp_path / "bundles" / "mine").is_symlink()
    assert "Other" in (tmp_path / "elsewhere" / "adapter.py").read_text()


def test_readers_never_see_half(tmp_path):
    """A reader scans all the while a bundle is put in and replaced."""
    put(tmp_path / "mine", "One")
    done = threading.Event()
    seen = []

    def read():
        while not done.is_set():
            found = discover(str(tmp_path))
            seen.append((len(found.bundles), [skipped.reason for skipped in found.skipped]))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        put(tmp_path / "mine", f"Turn{turn}", force=True)
    done.set()
    reader.join()
    assert set(map(repr, seen)) == {repr((1, []))}


def test_while_it_is_filled_no_reader_takes_it_for_a_bundle(tmp_path):
    with staging(tmp_path / "mine") as new:
        fill(new, "One")
        (hidden,) = tmp_path.iterdir()
        assert hidden.name.startswith(".tmp-")
        assert listing(hidden) == ["new"]
        assert discover(str(tmp_path)).bundles == ()
    assert listing(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_a_failure_leaves_the_old_one_and_nothing_else(tmp_path, error):
    put(tmp_path / "mine", "One")

    def fail():
        with staging(tmp_path / "mine") as new:
            fill(new, "Two")
            raise error

    with pytest.raises((KeyboardInterrupt, OSError)):
        fail()
    assert listing(tmp_path) == ["mine"]
    assert "One" in (tmp_path / "mine" / "adapter.py").read_text()


def test_a_failure_between_the_two_renames_puts_the_old_one_back(tmp_path, no_exchange):
    put(tmp_path / "mine", "One")
    with pytest.raises(FileNotFoundError), staging(tmp_path / "mine") as new:
        module._replace_in_two(new / "gone", tmp_path / "mine")
    assert listing(tmp_path) == ["mine"]
    assert "One" in (tmp_path / "mine" / "adapter.py").read_text()


def test_a_parent_that_was_made_for_nothing_is_removed(tmp_path):
    with staging(tmp_path / "bundles" / "mine"):
        pass
    assert listing(tmp_path) == []


@pytest.mark.parametrize("moved", [False, True])
def test_what_a_killed_run_left_is_tidied(tmp_path, moved):
    """Killed while filling, or between the two renames of a replacement."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom vllm_tt.bundle.install import staging\n"
        f"place = Path({str(tmp_path / 'mine')!r})\n"
        "with staging(place) as new:\n    (new / 'half.py').touch()\n"
        f"    if {moved}:\n        (new.parent / 'old').mkdir()\n        place.rename(new.parent / 'old' / 'mine')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    put(tmp_path / "mine", "One")
    killed = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(listing(tmp_path)) == (1 if moved else 2)
    tidy(tmp_path)
    assert listing(tmp_path) == ["mine"]
    assert "One" in (tmp_path / "mine" / "adapter.py").read_text()


def test_a_run_that_goes_on_is_not_tidied_away(tmp_path):
    with staging(tmp_path / "mine") as new:
        fill(new, "One")
        tidy(tmp_path)
        with staging(tmp_path / "other"):
            pass
        install(new, tmp_path / "mine", force=False)
    assert listing(tmp_path) == ["mine"]


def test_removing(tmp_path):
    put(tmp_path / "mine", "One")
    (tmp_path / "link").symlink_to("mine")
    remove(tmp_path / "link")
    assert listing(tmp_path) == ["mine"]
    remove(tmp_path / "mine")
    assert listing(tmp_path) == []


def test_folders_without_write_permission_are_removed_too(tmp_path):
    put(tmp_path / "mine", "One")
    (tmp_path / "mine" / "sub").mkdir()
    (tmp_path / "mine" / "sub" / "x").touch()
    (tmp_path / "mine" / "sub").chmod(0o500)
    remove(tmp_path / "mine")
    assert listing(tmp_path) == []
