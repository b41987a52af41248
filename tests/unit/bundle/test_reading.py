import os
import socket

import pytest
from bundle_cases import INVALID, name

from vllm_tt.bundle.reading import Bundle, Skipped, load


def reason(folder):
    found = load(folder)
    assert isinstance(found, Skipped)
    return found.finding.code, found.reason


@pytest.mark.parametrize("case", INVALID, ids=name)
def test_a_skipped_case_says_so_in_one_line(case):
    found = load(case)
    if isinstance(found, Bundle):
        return
    assert found.warning == f"Skipping bundle {case}: {found.reason}. Run 'tt-bundle validate {case}' for details."
    assert found.warning.isprintable()


def test_a_bundle_has_its_folders_name(add):
    found = load(add("my bundle.v2"))
    assert isinstance(found, Bundle)
    assert found.name == "my bundle.v2"


def test_names_that_do_not_print_are_escaped(add):
    found = load(add("two\nlines"))
    assert isinstance(found, Bundle)
    assert found.name == r"'two\nlines'"


def test_no_metadata(tmp_path):
    assert reason(tmp_path) == ("TB004", "no vllm_metadata.json in it (not a bundle folder)")


def test_a_link_to_the_file_is_followed(add, tmp_path):
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/vllm_metadata.json").symlink_to(add("real") / "vllm_metadata.json")
    assert isinstance(load(tmp_path / "linked"), Bundle)


def test_a_broken_link(tmp_path):
    (tmp_path / "vllm_metadata.json").symlink_to("gone.json")
    assert reason(tmp_path) == ("TB009", "vllm_metadata.json is a broken symbolic link -> 'gone.json'")


def test_a_link_loop(tmp_path):
    (tmp_path / "vllm_metadata.json").symlink_to("vllm_metadata.json")
    assert reason(tmp_path) == ("TB010", "cannot read vllm_metadata.json: Too many levels of symbolic links")


def test_a_folder(tmp_path):
    (tmp_path / "vllm_metadata.json").mkdir()
    assert reason(tmp_path) == ("TB011", "vllm_metadata.json is a directory, not a regular file")


@pytest.mark.timeout(10)
def test_a_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "vllm_metadata.json")
    assert reason(tmp_path) == ("TB011", "vllm_metadata.json is a FIFO, not a regular file")


def test_a_socket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("vllm_metadata.json")
        assert reason(tmp_path) == ("TB011", "vllm_metadata.json is a socket, not a regular file")


def test_a_device(tmp_path):
    (tmp_path / "vllm_metadata.json").symlink_to(os.devnull)
    assert reason(tmp_path) == ("TB011", "vllm_metadata.json is a device, not a regular file")


def test_a_huge_file_is_not_read(tmp_path):
    with (tmp_path / "vllm_metadata.json").open("wb") as file:
        file.truncate(50 << 30)
    assert reason(tmp_path) == ("TB106", "vllm_metadata.json has 53687091200 bytes; the limit is 1048576")


def test_a_file_without_permission(add, unprivileged):
    folder = add("closed")
    (folder / "vllm_metadata.json").chmod(0)
    with unprivileged():
        assert reason(folder) == ("TB010", "cannot read vllm_metadata.json: Permission denied")
