import io
import tarfile

import pytest
from archives import member, tarball

from vllm_tt.bundle.compression import ArchiveRefused
from vllm_tt.bundle.tarball import END, header, members, padding


def read(data):
    return [
        (found.path, b"".join(pieces), found.executable, found.folder) for found, pieces in members(io.BytesIO(data))
    ]


def refusal(data):
    with pytest.raises(ArchiveRefused) as raised:
        read(data)
    return f"{raised.value.finding.code} {raised.value.finding.message}"


LONG = "folder/" * 30 + "é" * 80 + ".py"


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_what_other_tools_write(kind):
    long = LONG if kind != tarfile.USTAR_FORMAT else "folder/" * 20 + "x.py"
    data = tarball(
        member("a"), member("b", b"x" * 513, mode=0o755), member("d", type=tarfile.DIRTYPE), member(long), format=kind
    )
    assert read(data) == [
        ("a", b"", False, False),
        ("b", b"x" * 513, True, False),
        ("d", b"", False, True),
        (long, b"", False, False),
    ]


@pytest.mark.parametrize("path", ["a", LONG, "x" * 100, "x" * 101])
def test_what_we_write(path):
    data = header(path, 3, executable=True) + b"abc" + padding(3) + END
    assert read(data) == [(path, b"abc", True, False)]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        (info,) = tar.getmembers()
    assert (info.name, info.mode, info.mtime, info.uid, info.gid, info.uname, info.gname) == (
        path, 0o755, 0, 0, 0, "", "",
    )  # fmt: skip


def test_contents_that_are_not_read_are_passed_over():
    data = tarball(member("a", b"x" * 2000), member("b"))
    assert [found.path for found, _ in members(io.BytesIO(data))] == ["a", "b"]


def test_a_global_header_with_a_comment_is_fine():
    plain = tarball(member("a"))
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "made by git"}):
            pass
        comment = out.getvalue().rstrip(b"\0")
    assert read(comment.ljust(1024, b"\0") + plain) == [("a", b"", False, False)]


KINDS = {
    tarfile.SYMTYPE: "is a symbolic link",
    tarfile.LNKTYPE: "is a hard link",
    tarfile.CHRTYPE: "is a device",
    tarfile.BLKTYPE: "is a device",
    tarfile.FIFOTYPE: "is a FIFO",
    tarfile.CONTTYPE: "is of the unknown kind '7'",
    b"S": "is a sparse file",
    b"V": "is of the unknown kind 'V'",
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_members(kind):
    data = tarball(member("evil", type=kind, linkname="/etc/passwd"))
    assert refusal(data) == f"TB902 'evil' {KINDS[kind]}; an archive of a bundle holds files alone"


@pytest.mark.parametrize(
    ("extension", "fault"),
    [
        (
            {"GNU.sparse.major": "1"},
            "TB902 archive holds a sparse file; an archive of a bundle holds plain files alone",
        ),
        ({"size": "-1"}, "TB906 not a bundle archive (corrupt tar header)"),
        ({"size": "9" * 30}, "TB906 not a bundle archive (corrupt tar header)"),
        ({"comment": "x" * 20_000}, "TB903 archive has headers that are too large"),
    ],
)
def test_extensions(extension, fault):
    info, data = member("a")
    info.pax_headers = extension
    assert refusal(tarball((info, data))) == fault


def test_a_path_for_all_members():
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "/etc/passwd"}):
            pass
        assert refusal(out.getvalue()) == "TB902 archive sets 'path' for all members"


def changed(data, start, new):
    """A header with some bytes replaced and the checksum made right."""
    block = bytearray(data)
    block[start : start + len(new)] = new
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "truncated tar"),
        (b"x", "truncated tar"),
        (b"x" * 512, "corrupt tar header"),
        (tarball(member("a", b"x" * 600))[:600], "truncated tar"),
        (tarball(member("a"))[:512], "truncated tar"),
        (tarball(member("a")) + b"x", "data after the end of the tar"),
        (changed(tarball(member("a")), 124, b"\xff" * 12), "corrupt tar header"),
        (changed(tarball(member("a")), 124, b"\x80" + b"\xff" * 11), "corrupt tar header"),
        (changed(tarball(member("a")), 124, b"89"), "corrupt tar header"),
        (changed(tarball(member("a")), 124, b"7" * 11), "truncated tar"),
        (changed(tarball(member("a/", type=tarfile.DIRTYPE)), 124, b"00000000010"), "the folder 'a/' has contents"),
    ],
)
def test_damage(data, fault):
    assert refusal(data) == f"TB906 not a bundle archive ({fault})"


def test_names_that_are_not_utf8():
    assert refusal(changed(tarball(member("a")), 0, b"\xe9")) == (r"TB901 unsafe path in archive: b'\xe9' is not UTF-8")


def test_endless_headers():
    block = header("x" * 200, 0, executable=False)[:1024]  # one extended header and no member
    with pytest.raises(ArchiveRefused) as raised:
        read(block * 20_001)
    assert raised.value.finding.message == "archive has more than 10000 members"
