import gzip
import io
import random
import zlib

import pytest

from vllm_tt.bundle.compression import MAGIC, ArchiveRefused, Compressor, Expanded

MIB = 1 << 20


def packed(*pieces):
    out = io.BytesIO()
    compressor = Compressor(out)
    for piece in pieces:
        compressor.write(piece)
    compressor.close()
    return out.getvalue()


def read(data, limit=1 << 30, **options):
    expanded = Expanded(io.BytesIO(data), limit, **options)
    return b"".join(iter(lambda: expanded.read(100_000), b""))


def refusal(data, **options):
    with pytest.raises(ArchiveRefused) as raised:
        read(data, **options)
    return f"{raised.value.finding.code} {raised.value.finding.message}"


TEXT = b"".join(b"line %d of a text\n" % number for number in range(100_000))
NOISE = random.Random(1).randbytes(3 * MIB + 12345)


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT + NOISE + TEXT, bytes(3 * MIB)])
def test_every_gzip_reads_it(data):
    assert gzip.decompress(packed(data)) == data
    assert read(packed(data)) == data


def test_pieces_do_not_matter():
    data = TEXT + NOISE
    assert packed(*(data[start : start + 99_991] for start in range(0, len(data), 99_991))) == packed(data)


def test_text_shrinks_and_noise_is_stored():
    assert len(packed(TEXT)) < len(TEXT) / 4
    assert len(NOISE) < len(packed(NOISE)) < len(NOISE) * 1.001


def test_no_more_than_enough_is_deflated():
    assert len(packed(TEXT * 10)) > 0.9 * len(TEXT * 10) - 5 * MIB


def test_what_compresses_too_well_is_not_taken_for_a_bomb():
    data = bytes(16 * MIB)
    assert read(packed(data)) == data


def test_the_header_names_no_time_and_no_system():
    assert packed(b"x").startswith(MAGIC)
    assert MAGIC[4:8] == bytes(4)


def test_a_bomb_by_size():
    assert refusal(packed(TEXT), limit=MIB) == "TB903 archive expands to more than 1 MiB"
    assert read(packed(TEXT), limit=MIB, slack=8 * MIB) == TEXT


def test_a_bomb_by_ratio():
    assert refusal(gzip.compress(bytes(20 * MIB))) == "TB903 archive expands more than 200 times"


def test_memory_stays_small():
    expanded = Expanded(io.BytesIO(gzip.compress(bytes(64 * MIB))), 1 << 30)
    while len(expanded.read(4096)) == 4096 and expanded.given < 9 * MIB:
        assert expanded.given < 10 * MIB


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (packed(TEXT)[:1000], "truncated gzip stream"),
        (packed(b"x")[:-1], "truncated gzip stream"),
        (packed(b"x") + b"y", "data after the end of the gzip stream"),
        (packed(b"x") * 2, "data after the end of the gzip stream"),
        (b"PK\3\4rest", "a zip file; expected a gzip-compressed tar"),
        (b"\xfd7zXZ\0", "an xz stream; expected a gzip-compressed tar"),
        (b"# text", "not gzip; expected a gzip-compressed tar"),
        (packed(b"x")[:-8] + bytes(8), "corrupt gzip stream: incorrect data check"),
        (MAGIC + b"\xff\xff", "corrupt gzip stream: invalid block type"),
    ],
)
def test_what_is_no_gzip(data, reason):
    assert refusal(data) == f"TB906 not a bundle archive ({reason})"


def test_any_cut_is_found():
    data = packed(TEXT[:2000] + NOISE[:2000])
    for end in range(0, len(data), 97):
        assert refusal(data[:end]).startswith("TB906 ")


def test_the_bytes_are_those_of_a_plain_deflate_stream():
    body = packed(TEXT)[len(MAGIC) : -8]
    assert zlib.decompress(body, -zlib.MAX_WBITS) == TEXT
