import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vllm_tt.emulation import MACHINES
from vllm_tt.emulation.runtime_root import (
    CacheNotUsable,
    CachePathNotUsable,
    EmulationFolder,
    FolderIncomplete,
    InstalledTtnn,
    RuntimeFilesMissing,
)


@pytest.fixture
def ttnn(tmp_path):
    """A ttnn package as a wheel installs it."""
    package = tmp_path / "site" / "ttnn"
    for folder in ("tt_metal", "ttnn"):
        (package / folder).mkdir(parents=True)
    return InstalledTtnn(package=package, version="0.81.1")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_the_folder_has_a_root_descriptors_and_places_to_write(cache, ttnn):
    folder = EmulationFolder.ensure(cache, ttnn)
    assert [path.name for path in cache.iterdir()] == ["emulation"]
    assert list((cache / "emulation").iterdir()) == [folder.path]
    assert folder.path.name.startswith("0.81.1-")
    assert sorted(path.name for path in folder.path.iterdir()) == ["descriptors", "kernels", "logs", "root"]
    assert sorted(path.name for path in folder.root.iterdir()) == ["runtime", "tt_metal", "ttnn"]
    assert (folder.root / "tt_metal").resolve() == ttnn.package / "tt_metal"
    assert folder.descriptor("T3K").read_text() == MACHINES["T3K"].to_json()
    assert all(folder.logs(name).is_dir() for name in MACHINES)


def test_a_finished_folder_is_used_again(cache, ttnn):
    first = EmulationFolder.ensure(cache, ttnn)
    (first.kernels / "kept").touch()
    assert EmulationFolder.ensure(cache, ttnn) == first
    assert (first.kernels / "kept").exists()


def test_another_version_and_another_place_have_folders_of_their_own(cache, ttnn):
    elsewhere = ttnn.package.parent.parent / "other" / "ttnn"
    shutil.copytree(ttnn.package, elsewhere)
    installed = [
        ttnn,
        InstalledTtnn(package=ttnn.package, version="0.82.0"),
        InstalledTtnn(package=elsewhere, version="0.81.1"),
    ]
    assert len({EmulationFolder.ensure(cache, each) for each in installed}) == 3


def test_builders_that_meet_agree_on_one_folder(cache, ttnn):
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: EmulationFolder.ensure(cache, ttnn), range(32)))
    assert len(folders) == 1
    assert list((cache / "emulation").iterdir()) == [folders.pop().path]


def test_a_relative_cache_becomes_absolute(tmp_path, ttnn, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert EmulationFolder.ensure(Path("cache"), ttnn).path.is_relative_to(tmp_path / "cache")


def test_the_files_of_a_checkout_are_beside_its_package(tmp_path):
    for folder in ("tt_metal", "ttnn/ttnn"):
        (tmp_path / folder).mkdir(parents=True)
    assert InstalledTtnn(package=tmp_path / "ttnn" / "ttnn", version="checkout").runtime_files == tmp_path


def test_a_package_without_runtime_files(tmp_path, cache):
    package = tmp_path / "a" / "b" / "ttnn"
    package.mkdir(parents=True)
    with pytest.raises(RuntimeFilesMissing) as error:
        EmulationFolder.ensure(cache, InstalledTtnn(package=package, version="0.81.1"))
    assert str(error.value) == (
        f"The ttnn package in {package} has no runtime files: expected a folder tt_metal in {package} or "
        f"{tmp_path / 'a'}. Reinstall ttnn, or point PYTHONPATH at a complete tt-metal checkout."
    )


@pytest.mark.parametrize(
    ("name", "found"), [("two words", " "), ("it's", "'"), ("a&b;c", "&;"), ('"quoted"', '"'), ("back\\slash", "\\")]
)
def test_a_path_that_a_shell_would_split_is_refused(tmp_path, ttnn, name, found):
    cache = tmp_path / name
    with pytest.raises(CachePathNotUsable) as error:
        EmulationFolder.ensure(cache, ttnn)
    assert str(error.value) == (
        f"The cache folder {cache} cannot hold an emulated machine: tt-metal's compile command does not survive "
        f"{found!r} in a path. Set TT_VLLM_CACHE to a folder without spaces and quotes."
    )
    assert not cache.exists()


def test_other_languages_are_fine_in_a_path(tmp_path, ttnn):
    assert EmulationFolder.ensure(tmp_path / "café-日本", ttnn).root.is_dir()


def test_a_cache_that_cannot_be_written(tmp_path, ttnn):
    cache = tmp_path / "file"
    cache.touch()
    with pytest.raises(CacheNotUsable) as error:
        EmulationFolder.ensure(cache, ttnn)
    assert str(error.value) == (
        f"The cache folder {cache} cannot hold an emulated machine: [Errno 20] Not a directory: "
        f"'{cache / 'emulation'}'. Set TT_VLLM_CACHE to a folder on a file system where files can be written "
        "and executed."
    )


def test_a_folder_that_has_lost_something(cache, ttnn):
    folder = EmulationFolder.ensure(cache, ttnn)
    folder.compiler.unlink()
    with pytest.raises(FolderIncomplete) as error:
        EmulationFolder.ensure(cache, ttnn)
    assert str(error.value) == (
        f"The emulated machine's {folder.compiler} is gone or belongs to someone else. "
        f"Delete {folder.path}: it is built again."
    )


class TestPlaceholderCompiler:
    @pytest.fixture
    def compiler(self, cache, ttnn, tmp_path):
        compiler = EmulationFolder.ensure(cache, ttnn).compiler

        def run(*arguments):
            return subprocess.run(
                [compiler, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
            ).stdout

        return run

    def test_its_version_is_no_real_compilers(self, compiler):
        assert compiler("--version") == "placeholder compiler for emulated machines\n"

    def test_an_object_comes_with_its_dependencies(self, compiler, tmp_path):
        compiler("-c", "-O2", "kernel.cc", "-o", "kernel.o")
        assert (tmp_path / "kernel.o").read_bytes() == b""
        assert (tmp_path / "kernel.d").read_text() == "kernel.o:\n"

    def test_a_link_yields_a_risc_v_program(self, compiler, tmp_path):
        compiler("kernel.o", "-o", "kernel.elf", "-Wl,--gc-sections")
        elf = (tmp_path / "kernel.elf").read_bytes()
        assert elf[:6] == b"\x7fELF\x01\x01"
        kind, machine, _, entry, segments_at, sections_at = struct.unpack_from("<HHIIII", elf, 16)
        assert (kind, machine, entry, segments_at) == (2, 243, 0x5000, 52)
        (section_count,) = struct.unpack_from("<H", elf, 48)
        assert len(elf) == sections_at + 40 * section_count
        load, offset, address, _, size, *_ = struct.unpack_from("<8I", elf, segments_at)
        assert (load, address) == (1, entry)
        assert elf[offset : offset + size] == b"\x13\x00\x00\x00" * 4

    def test_anything_else_is_an_empty_file(self, compiler, tmp_path):
        compiler("-E", "header.h", "-o", "header.pch")
        assert (tmp_path / "header.pch").read_bytes() == b""
