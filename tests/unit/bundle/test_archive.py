import gzip
import io
import os
import tarfile
import time

import pytest
from archives import METADATA, archive, bundle, everything_below, member

from vllm_tt.bundle import archive as module
from vllm_tt.bundle import lock
from vllm_tt.bundle.archive import folder_name, read, write
from vllm_tt.bundle.compression import ArchiveRefused
from vllm_tt.bundle.files import Changed, Choice, select


@pytest.fixture
def folder(add):
    place = add("mine", name="mine", version="1.0")
    (place / "adapter.py").write_text("class Model: pass\n")
    (place / "sub").mkdir()
    (place / "sub" / "é.py").write_bytes(b"x = 1\n" * 1000)
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o755)
    return place


def packed(folder, **choice):
    out = io.BytesIO()
    write(select(folder, Choice(**choice)), out)
    return out.getvalue()


def refusal(data, into=None, **options):
    with pytest.raises(ArchiveRefused) as raised:
        read(io.BytesIO(data), into, **options)
    return f"{raised.value.finding.code} {raised.value.finding.message}"


def test_one_folder_files_in_order_and_the_lock_last(folder):
    with tarfile.open(fileobj=io.BytesIO(packed(folder))) as tar:
        infos = tar.getmembers()
        locked = tar.extractfile("mine/bundle.lock.json").read()
    assert [(info.name, oct(info.mode)) for info in infos] == [
        ("mine/adapter.py", "0o644"),
        ("mine/run.sh", "0o755"),
        ("mine/sub/é.py", "0o644"),
        ("mine/vllm_metadata.json", "0o644"),
        ("mine/bundle.lock.json", "0o644"),
    ]
    assert locked == lock.make(select(folder)).to_bytes()


def test_the_same_bytes_on_another_day_in_another_folder(folder, tmp_path, monkeypatch):
    before = packed(folder)
    elsewhere = tmp_path / "some" / "where else"
    umask = os.umask(0o077)
    try:
        (elsewhere / "sub").mkdir(parents=True)
        for file in ("vllm_metadata.json", "sub/é.py", "run.sh", "adapter.py"):
            (elsewhere / file).write_bytes((folder / file).read_bytes())
            os.utime(elsewhere / file, (1, 10**9))
        (elsewhere / "run.sh").chmod(0o700)
    finally:
        os.umask(umask)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12345")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert packed(elsewhere) == before
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"name": "nice"}, "nice"),
        ({}, "LlamaForCausalLM"),
        ({"arch": "TTFoo"}, "Foo"),
        ({"name": "a/b"}, "LlamaForCausalLM"),
        ({"name": ".."}, "LlamaForCausalLM"),
        ({"name": ".hidden"}, "LlamaForCausalLM"),
    ],
)
def test_the_folder_inside_is_named_by_the_metadata_alone(add, fields, name):
    assert folder_name(select(add("any", **fields)).metadata) == name


def test_a_round_trip(folder, tmp_path):
    into = tmp_path / "into"
    into.mkdir()
    contents = read(io.BytesIO(packed(folder)), into)
    (into / "mine" / "bundle.lock.json").unlink()
    assert everything_below(into / "mine") == everything_below(folder)
    assert contents.top == "mine"
    assert contents.metadata == (folder / "vllm_metadata.json").read_bytes()
    assert lock.compare(lock.parse(contents.lock), contents.files, strict=True) == ()


def test_modes_are_ours_whatever_the_archive_and_the_umask_say(tmp_path):
    data = archive(
        member("vllm_metadata.json", METADATA, mode=0o6777),
        member("sub/secret.py", mode=0o000),
        member("sub", type=tarfile.DIRTYPE, mode=0o1777),
    )
    umask = os.umask(0o077)
    try:
        read(io.BytesIO(data), tmp_path)
    finally:
        os.umask(umask)
    modes = {path.name: oct(path.stat().st_mode & 0o7777) for path in tmp_path.rglob("*")}
    assert modes == {"vllm_metadata.json": "0o755", "sub": "0o755", "secret.py": "0o644"}


def test_nothing_is_written_without_a_folder(folder, tmp_path, monkeypatch):
    data = packed(folder)
    monkeypatch.setattr(os, "open", lambda *_args, **_options: pytest.fail("a file was opened"))
    assert set(read(io.BytesIO(data)).files) == {"adapter.py", "run.sh", "sub/é.py", "vllm_metadata.json"}


def test_an_archive_made_by_tar_in_the_folder():
    data = archive(member(".", type=tarfile.DIRTYPE), member("./vllm_metadata.json", METADATA), member("./a/b.py"))
    contents = read(io.BytesIO(data))
    assert (contents.top, set(contents.files)) == ("", {"vllm_metadata.json", "a/b.py"})


def test_a_file_that_changes_while_it_is_packed(folder):
    selection = select(folder)
    with (folder / "sub" / "é.py").open("a") as file:
        file.write("more")
    with pytest.raises(Changed):
        write(selection, io.BytesIO())


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../x", "has an empty, '.' or '..' part"),
        ("mine/../../x", "has an empty, '.' or '..' part"),
        ("mine/./x", "has an empty, '.' or '..' part"),
        ("mine//x", "has an empty, '.' or '..' part"),
        ("/etc/cron.d/x", "is absolute"),
        ("C:/x", "is absolute"),
        ("c:x", "is absolute"),
        ("mine\\x", "holds a backslash"),
        ("mine/a\nb", "holds a control character"),
        ("mine/" + "a/" * 40 + "x", "has more than 32 parts"),
        ("mine/" + "x" * 256, "is too long"),
        ("mine/" + "/".join(["x" * 200] * 6), "is too long"),
        ("", "has an empty, '.' or '..' part"),
    ],
)
def test_unsafe_paths(tmp_path, path, fault):
    inner = tmp_path / "inner"
    inner.mkdir()
    text = repr(path)
    shown = text if len(text) <= 80 else f"{text[:76]}...'"
    assert refusal(bundle(member(path, b"evil")), inner) == f"TB901 unsafe path in archive: {shown} {fault}"
    assert {place.name for place in tmp_path.iterdir()} == {"inner"}
    assert not any("evil" in place.read_text() for place in tmp_path.rglob("*") if place.is_file())


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ([member("mine/adapter.py")], "archive holds 'mine/adapter.py' twice"),
        (
            [member("mine/Adapter.py")],
            "archive holds 'mine/adapter.py' and 'mine/Adapter.py', the same name on some systems",
        ),
        (
            [member("MINE/x.py")],
            "archive holds 'mine' and 'MINE', the same name on some systems",
        ),
        (
            [member("mine/\u00e9"), member("mine/e\u0301")],
            "archive holds 'mine/\u00e9' and 'mine/e\u0301', the same name on some systems",
        ),
        ([member("mine/adapter.py/x")], "archive holds 'mine/adapter.py' as a file and as a folder"),
        ([member("mine/d/x"), member("mine/d")], "archive holds 'mine/d' as a file and as a folder"),
        (
            [member("mine/adapter.py", type=tarfile.DIRTYPE)],
            "archive holds 'mine/adapter.py' as a file and as a folder",
        ),
    ],
)
def test_paths_that_get_in_each_others_way(tmp_path, members, fault):
    assert refusal(bundle(*members), tmp_path) == f"TB904 {fault}"


@pytest.mark.parametrize(
    "data",
    [
        archive(),
        archive(member("adapter.py")),
        archive(member("a/b/vllm_metadata.json", METADATA)),
        archive(member("mine/vllm_metadata.json", METADATA), member("other/x")),
        archive(member("mine/vllm_metadata.json", METADATA), member("torch.py")),
    ],
)
def test_no_bundle_in_it(data):
    assert refusal(data) == "TB905 not a bundle archive: vllm_metadata.json not found at depth 0 or 1"


def test_sizes_are_claims(monkeypatch):
    huge = member("mine/x", b"")
    huge[0].size = 1 << 40
    lying = gzip.compress(huge[0].tobuf())
    assert refusal(lying) == "TB903 archive expands to more than 512 MiB"
    assert refusal(bundle(member("mine/x", bytes(2000))), max_size=1000) == "TB903 archive expands to more than 1.0 kB"
    monkeypatch.setattr(module, "MAX_FILES", 2)
    assert refusal(bundle(*(member(f"mine/{n}") for n in range(3)))) == "TB903 archive has more than 2 members"


def test_a_lock_in_another_folder_is_not_the_bundles():
    data = archive(
        member("x/bundle.lock.json", b"{}"),
        member("x/vllm_metadata.json", b"{}"),
        member("y/bundle.lock.json", b"{}"),
        member("bundle.lock.json", b"mine"),
        member("vllm_metadata.json", METADATA),
    )
    contents = read(io.BytesIO(data))
    assert (contents.lock, contents.metadata, contents.top) == (b"mine", METADATA, "")


def test_links_that_are_there_already_are_not_followed(tmp_path):
    """Someone with access to the staging folder cannot redirect what is written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for link in ("mine", "mine/sub"):
        into = tmp_path / f"into-{link.count('/')}"
        (into / link).parent.mkdir(parents=True)
        (into / link).symlink_to(outside)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            read(io.BytesIO(bundle(member("mine/sub/x.py", b"evil"))), into)
    assert list(outside.iterdir()) == []
