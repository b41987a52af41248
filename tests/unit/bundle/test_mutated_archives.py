"""Archives with random damage, TT_FUZZ of them: refused or installed, and nothing else happens."""

import gzip
import io
import os
import random
import time

import pytest

from vllm_tt.bundle.files import select
from vllm_tt.bundle.findings import RULES
from vllm_tt.bundle.pack import pack
from vllm_tt.bundle.unpack import Demands, unpack

MUTATIONS = int(os.environ.get("TT_FUZZ", "150"))
LAYERS = ("gzip", "tar", "headers")


@pytest.fixture
def packed(add):
    folder = add("source/mine", name="mine", version="1.0")
    (folder / "adapter.py").write_text("class Model: pass\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "é.py").write_bytes(b"x = 1\n" * 1000)
    out = io.BytesIO()
    pack(select(folder), out)
    return out.getvalue()


def mutated(data, rng):
    """Some damage to bytes: flipped, cut out, doubled, or made of extremes."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        where = rng.randrange(len(data)) if data else 0
        length = rng.choice([1, 1, 4, 12, 100, 512])
        kind = rng.randrange(6)
        if kind == 0:
            data[where : where + length] = rng.randbytes(length)
        elif kind == 1:
            del data[where : where + length]
        elif kind == 2:
            data[where:where] = data[where : where + length]
        elif kind == 3:
            data[where : where + length] = rng.choice([b"\0", b"\xff", b"7", b"/", b"."]) * length
        elif kind == 4:
            del data[where:]
        elif data:
            data[where] ^= 1 << rng.randrange(8)
    return bytes(data)


def checksummed(tar):
    """A damaged tar with right checksums in its headers, so that the damage gets past them."""
    tar = bytearray(tar)
    for start in range(0, len(tar) - 511, 512):
        if tar[start + 257 : start + 262] == b"ustar":
            tar[start + 148 : start + 156] = b" " * 8
            tar[start + 148 : start + 156] = b"%06o\0 " % sum(tar[start : start + 512])
    return bytes(tar)


def damaged(data, layer, rng):
    if layer == "gzip":
        return mutated(data, rng)
    tar = mutated(gzip.decompress(data), rng)
    return gzip.compress(checksummed(tar) if layer == "headers" else tar, 1)


@pytest.mark.parametrize("layer", LAYERS)
def test_mutations(packed, tmp_path, layer):
    rng = random.Random(layer)
    refused = []
    for turn in range(-(-MUTATIONS // len(LAYERS))):
        into = tmp_path / "room" / f"{turn}"
        into.mkdir(parents=True)
        started = time.monotonic()
        done = unpack(io.BytesIO(damaged(packed, layer, rng)), into, Demands())
        assert time.monotonic() - started < 10
        if done.folder is None:
            refused += done.checked.findings
            assert list(into.iterdir()) == []
        else:
            assert [path.name for path in into.iterdir()] == [done.folder.name]
            assert not any(path.is_symlink() for path in into.rglob("*"))
    assert {found.code for found in refused} <= RULES.keys()
    assert all(found.message.isprintable() for found in refused)
    assert {path.name for path in tmp_path.iterdir()} == {"room", "source"}
    assert len(list((tmp_path / "room").iterdir())) == -(-MUTATIONS // len(LAYERS))
