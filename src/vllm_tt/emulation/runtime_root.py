"""The folder an emulated machine runs from: cluster descriptors, kernel cache and a runtime root.

The root is the installed ttnn's own files plus a placeholder where the RISC-V compiler would be. A
mock device executes nothing, so an empty object per compile and one tiny program per link are
enough for firmware, fabric routers and kernels. Its version line is unlike a real compiler's, and
its output has a kernel cache of its own: it can never reach a device.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from vllm_tt import env
from vllm_tt.emulation.descriptors import MACHINES
from vllm_tt.errors import ConfigError, TTError

__all__ = [
    "CacheNotUsable",
    "CachePathNotUsable",
    "EmulationFolder",
    "FolderIncomplete",
    "InstalledTtnn",
    "RuntimeFilesMissing",
    "TtnnNotInstalled",
]

DESCRIPTOR_SUFFIX = ".tt-emulate.yaml"
"""Ending of our descriptors' names, by which they are told from a user's own."""

_COMPILER_SCRIPT = r"""#!/bin/sh
if [ "$1" = --version ]; then echo "placeholder compiler for emulated machines"; exit 0; fi
out= last=
for arg; do
    if [ "$last" = -o ]; then out=$arg; fi
    last=$arg
done
case $out in
*.elf) cp "${0%/*}/placeholder.elf" "$out" ;;
*.o) : > "$out" && echo "$out:" > "${out%.o}.d" ;;
*) : > "$out" ;;
esac
"""

_UNSAFE = frozenset(" \t\r\n\"'`$&|;<>()[]{}*?!\\")
"""What the runtime's compile command, which a shell splits, does not survive in a path."""


class TtnnNotInstalled(ConfigError):
    """TT_EMULATE={machine} needs the Python package ttnn, which is not installed in {prefix}.
    Install it (pip install ttnn), or unset TT_EMULATE.
    """


class RuntimeFilesMissing(TTError):
    """The ttnn package in {package} has no runtime files: expected a folder tt_metal in {places}.
    Reinstall ttnn, or point PYTHONPATH at a complete tt-metal checkout.
    """


class CachePathNotUsable(ConfigError):
    """The cache folder {folder} cannot hold an emulated machine: tt-metal's compile command does not
    survive {found!r} in a path. Set {variable} to a folder without spaces and quotes.
    """


class CacheNotUsable(ConfigError):
    """The cache folder {folder} cannot hold an emulated machine: {cause}.
    Set {variable} to a folder on a file system where files can be written and executed.
    """


class FolderIncomplete(TTError):
    """The emulated machine's {path} is gone or belongs to someone else. Delete {folder}: it is built again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledTtnn:
    """Where the installed ttnn is, found without importing it."""

    package: Path
    version: str

    @classmethod
    def find(cls) -> InstalledTtnn | None:
        spec = util.find_spec("ttnn")
        if spec is None or spec.origin is None:
            return None
        try:
            version = metadata.version("ttnn")
        except metadata.PackageNotFoundError:  # on PYTHONPATH, in a tt-metal checkout
            version = "checkout"
        return cls(package=Path(spec.origin).resolve().parent, version=version)

    @property
    def runtime_files(self) -> Path:
        """The folder with ``tt_metal`` and ``ttnn``: the package of a wheel, the top of a checkout."""
        places = (self.package, self.package.parent.parent)
        for place in places:
            if (place / "tt_metal").is_dir():
                return place
        raise RuntimeFilesMissing(package=self.package, places=" or ".join(map(str, places)))


@dataclass(frozen=True, slots=True)
class EmulationFolder:
    """The finished folder of one ttnn installation; all processes share it."""

    path: Path

    @property
    def root(self) -> Path:
        return self.path / "root"

    @property
    def compiler(self) -> Path:
        return self.root / "runtime" / "sfpi" / "compiler" / "bin" / "riscv-tt-elf-g++"

    @property
    def kernels(self) -> Path:
        return self.path / "kernels"

    def descriptor(self, machine: str) -> Path:
        return self.path / "descriptors" / (machine + DESCRIPTOR_SUFFIX)

    def logs(self, machine: str) -> Path:
        """The runtime's reports, apart for each machine: it writes the same names for all."""
        return self.path / "logs" / machine

    @classmethod
    def ensure(cls, cache: Path, ttnn: InstalledTtnn) -> EmulationFolder:
        """The folder under ``cache``, built when it is not there yet.

        Its name has the ttnn version and a digest of all that went into it. It is built aside and
        renamed when complete, so processes that start together see all of it or none.
        """
        cache = cache.expanduser().absolute()
        if found := _UNSAFE.intersection(str(cache)):
            raise CachePathNotUsable(folder=cache, found="".join(sorted(found)), variable=env.CACHE_DIR.name)
        files = _files()
        folder = cls(cache / "emulation" / f"{ttnn.version}-{_digest(ttnn.runtime_files, files)}")
        try:
            if not folder.path.is_dir():
                _build(folder.path, ttnn.runtime_files, files)
        except OSError as error:
            raise CacheNotUsable(folder=cache, cause=error, variable=env.CACHE_DIR.name) from error
        for path, mode in ((folder.kernels, os.W_OK), (folder.compiler, os.X_OK)):
            if not os.access(path, mode):
                raise FolderIncomplete(path=path, folder=folder.path)
        return folder


def _files() -> dict[Path, bytes]:
    """What we write ourselves, by path in the folder."""
    here = EmulationFolder(Path())
    files = {
        here.compiler: _COMPILER_SCRIPT.encode(),
        here.compiler.with_name("placeholder.elf"): _placeholder_elf(),
    }
    return files | {here.descriptor(name): machine.to_json().encode() for name, machine in MACHINES.items()}


def _digest(runtime_files: Path, files: dict[Path, bytes]) -> str:
    digest = hashlib.sha256(str(runtime_files).encode())
    for path, content in files.items():
        digest.update(b"\0".join((str(path).encode(), content)))
    return digest.hexdigest()[:12]


def _build(path: Path, runtime_files: Path, files: dict[Path, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".building-", dir=path.parent))
    try:
        for name, content in files.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_bytes(content)
        new = EmulationFolder(aside)
        for folder in (new.kernels, *map(new.logs, MACHINES)):
            folder.mkdir(parents=True)
        for needed in ("tt_metal", "ttnn"):
            (new.root / needed).symlink_to(runtime_files / needed)
        new.compiler.chmod(0o755)
        subprocess.run([new.compiler, "--version"], check=True, stdout=subprocess.DEVNULL)
        _rename(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _rename(aside: Path, path: Path) -> None:
    try:
        aside.rename(path)
    except OSError:
        if not path.is_dir():  # else another process was first, with the same content
            raise


def _placeholder_elf(address: int = 0x5000) -> bytes:
    """A 32-bit RISC-V program that loads as firmware or kernel: four nops and no relocations."""
    code = struct.pack("<4I", *[0x13] * 4)
    names = b"\0.text\0.rela.text\0.symtab\0.strtab\0.shstrtab\0"
    text_at = 52 + 32  # behind the file header and the one program header
    symbols_at = text_at + len(code)
    strings_at = symbols_at + 16
    names_at = strings_at + 4
    sections_at = -(-(names_at + len(names)) // 4) * 4

    def section(name: bytes, kind: int, flags: int, place: tuple[int, int, int], **more: int) -> bytes:
        links = (more.get("link", 0), more.get("info", 0), more.get("align", 4), more.get("entry", 0))
        return struct.pack("<10I", names.index(name + b"\0"), kind, flags, *place, *links)

    body = code + bytes(16) + bytes(4) + names
    sections = bytes(40) + b"".join(
        (
            section(b".text", 1, 0x6, (address, text_at, len(code)), align=16),
            section(b".rela.text", 4, 0x40, (0, symbols_at, 0), link=3, info=1, entry=12),
            section(b".symtab", 2, 0, (0, symbols_at, 16), link=4, info=1, entry=16),
            section(b".strtab", 3, 0, (0, strings_at, 1), align=1),
            section(b".shstrtab", 3, 0, (0, names_at, len(names)), align=1),
        )
    )
    executable, risc_v = 2, 243
    header = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIIIIIHHHHHH", executable, risc_v, 1, address, 52, sections_at, 0, 52, 32, 1, 40, 6, 5
    )
    segment = struct.pack("<8I", 1, text_at, address, address, len(code), len(code), 5, 16)
    return (header + segment + body).ljust(sections_at, b"\0") + sections
