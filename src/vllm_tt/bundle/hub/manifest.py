"""``tt_kernel_manifest.json``, tt-model's description of a repository: read leniently, written for its ``pull``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt._version import __version__
from vllm_tt.bundle.lock import LockedFile
from vllm_tt.bundle.names import plain_name
from vllm_tt.bundle.paths import path_fault
from vllm_tt.mesh import MESH_GRIDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_tt.bundle.metadata import Metadata

__all__ = ["ARCHITECTURES", "MANIFEST_NAME", "MAX_BYTES", "Manifest", "device_architecture", "manifest_for"]

MANIFEST_NAME = "tt_kernel_manifest.json"
MAX_BYTES = 8 << 20
ARCHITECTURES = ("wormhole_b0", "blackhole")
"""The device architectures that a manifest can name, the default first."""

_LIMITS = {
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "block_size": "block_size",
    "trace_region_bytes": "trace_region_size",
}
"""What the manifest calls each limit, and what the metadata does."""
_PARSERS = ("tool_parser", "reasoning_parser")


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The manifest of a repository that someone else wrote: anything may be missing or of another type."""

    root: Mapping[str, Any]

    @classmethod
    def parse(cls, data: bytes) -> Manifest | None:
        """The manifest in a file, or None where there is none to make sense of. Never raises."""
        try:
            root = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return cls(root=root) if isinstance(root, dict) else None

    @property
    def metal_dir(self) -> str | None:
        """The folder with the code of a version 5 repository, where it says so."""
        name = self._block("bundled").get("metal_dir")
        if not isinstance(name, str):
            return None
        name = name.strip("/")
        return None if path_fault(name) else name

    @property
    def files(self) -> dict[str, LockedFile]:
        """Size and digest of the files that it lists, by their paths."""
        listed = self.root.get("files")
        found = {}
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict):
                path, size, digest = one.get("path"), one.get("size"), one.get("sha256")
                if isinstance(path, str) and isinstance(size, int) and isinstance(digest, str):
                    found[path] = LockedFile(path=path, size=size, sha256=digest)
        return found

    def rendered(self) -> bytes | None:
        """The metadata that its ``entrypoint`` describes; None without one."""
        entry = self._block("entrypoint")
        arch, target = entry.get("arch_name"), entry.get("cls", entry.get("class"))
        if not (isinstance(arch, str) and arch and isinstance(target, str) and target):
            return None
        weights = self._block("weights")
        content: dict[str, Any] = {
            "arch": arch,
            "main_class": target,
            "hf_weights": _text(weights.get("repo_id", weights.get("repo"))),
            "hf_revision": _text(weights.get("revision")),
            "requires": _known(
                {"ttnn": self._block("platform").get("ttnn"), "vllm": self._block("runtime").get("version")}
            ),
            "limits": self._limits(),
            "serving": _known({key: self._block("capabilities").get(key) for key in _PARSERS}),
            "launch": {"default": self._launch()},
        }
        kept = {key: value for key, value in content.items() if value not in (None, {}) or key == "hf_weights"}
        return _dumped(kept)

    def _block(self, name: str) -> Mapping[str, Any]:
        block = self.root.get(name)
        return block if isinstance(block, dict) else {}

    def _limits(self) -> dict[str, int]:
        resources = self._block("resources")
        found = {ours: resources.get(theirs) for theirs, ours in _LIMITS.items()}
        return {key: value for key, value in found.items() if type(value) is int and value > 0}

    def _launch(self) -> dict[str, Any]:
        """The command that tt-model composes."""
        resources, weights = self._block("resources"), self._block("weights")
        command: list[Any] = ["python3", "server_example_tt.py"]
        override = resources.get("command_override")
        if isinstance(override, list) and override:
            command = override
        else:
            flags = {
                "--model": weights.get("repo_id", weights.get("repo")),
                **{f"--{key}": resources.get(key) for key in ("max_model_len", "max_num_seqs", "block_size")},
            }
            command += [part for flag, value in flags.items() if value for part in (flag, str(value))]
            extra = resources.get("extra_args")
            command += [str(part) for part in extra] if isinstance(extra, list) else []
        env = {str(key): str(value) for key, value in self._block("env").items() if value is not None}
        return {"command": [str(part) for part in command], "env": {"VLLM_USE_V1": "1", **env}}


def manifest_for(name: str, metadata: Metadata, architecture: str) -> bytes:
    """The manifest for a repository with ``metadata`` in its ``vllm_bundle/``, the same bytes each time.

    tt-model starts a version 3 bundle by the launch map of its metadata. Without one it is described as
    version 4, for which tt-model makes that map from the manifest. The files are not listed: the bundle's
    own lock says what each of them holds, and the Hub keeps them by their digests.
    """
    meshes = [MESH_GRIDS[mesh] for mesh in metadata.mesh_devices if mesh in MESH_GRIDS]
    content: dict[str, Any] = {
        "schema_version": "3" if metadata.launch else "4",
        "name": name,
        "tt_metal_version": "",
        "arch": architecture,
        "device_count": meshes[0].chips if meshes else 1,
        "build_key": "",
        "build_key_inputs": {},
        "kernel_count": 0,
        "files": [],
        # Nothing of the machine or the time: the same bundle is the same commit.
        "producer": {
            "tt_kernel_version": f"vllm-tt {__version__}",
            "created_at": "1970-01-01T00:00:00+00:00",
            "hostname": "",
            "tt_metal_home": "",
        },
        "runner": {"spec": "", "wheels": [], "backend": "vllm", "bundle_dir": "vllm_bundle"},
    }
    if metadata.hf_weights:
        content["weights"] = _known({"repo_id": metadata.hf_weights, "revision": metadata.hf_revision})
    if not metadata.launch:
        content |= _version_4(metadata)
    return _dumped(content)


def device_architecture(metadata: Metadata) -> str:
    """The device architecture that a bundle is for, by its meshes or launch map."""
    for key in metadata.launch:
        for architecture in ARCHITECTURES:
            if key.startswith(architecture):
                return architecture
    for mesh in metadata.mesh_devices:
        if mesh in MESH_GRIDS:
            return "blackhole" if mesh.upper().startswith(("P1", "P3", "BH")) else "wormhole_b0"
    return ARCHITECTURES[0]


def _version_4(metadata: Metadata) -> dict[str, Any]:
    limits = {theirs: getattr(metadata.limits, ours) for theirs, ours in _LIMITS.items()}
    blocks = {
        "platform": _known({"ttnn": metadata.requires.ttnn}),
        "runtime": _known({"kind": "vllm", "version": metadata.requires.vllm}),
        "entrypoint": {"cls": metadata.main_class, "arch_name": plain_name(metadata.arch)},
        "resources": {key: value for key, value in limits.items() if value is not None},
        "capabilities": _known({key: getattr(metadata.serving, key) for key in _PARSERS}),
    }
    return {key: value for key, value in blocks.items() if value}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _known(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in values.items() if _text(value)}


def _dumped(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
