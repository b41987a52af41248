"""Archives for tests: tar members with any header, and what is found where they are unpacked."""

import gzip
import io
import tarfile

METADATA = b'{"arch": "LlamaForCausalLM", "main_class": "adapter:Model"}'


def member(name, data=b"", **header):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in header.items():
        setattr(info, key, value)
    return info, data


def tarball(*members, format=tarfile.PAX_FORMAT):  # noqa: A002 - tarfile's word
    """The bytes of a tar with the members, each (info, data)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def archive(*members, **options):
    return gzip.compress(tarball(*members, **options), mtime=0)


def bundle(*more, top="mine/"):
    """An archive of a small bundle with some more members, without a lock."""
    return archive(
        member(f"{top}vllm_metadata.json", METADATA), member(f"{top}adapter.py", b"class Model: pass\n"), *more
    )


def everything_below(folder):
    """Every path with its kind, mode and contents: equal for equal trees."""
    found = {}
    for path in sorted(folder.rglob("*")):
        data = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path.relative_to(folder).as_posix()] = (oct(path.lstat().st_mode), data)
    return found
