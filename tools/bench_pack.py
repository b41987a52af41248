"""How fast ``tt-bundle pack`` is beside ``sha256sum`` on the same files, and how much memory it takes.

    python tools/bench_pack.py [--megabytes 200] [--rounds 3] [--kind weights|text|files|all]

Each figure is the best of the rounds, of whole processes with warm files; both are single threads, and their
processor time is what is compared, which other work on the machine disturbs less than time on the clock.
Fails when packing takes more than twice what ``sha256sum`` does (three times for small texts, which are looked
through for secrets before), or more than 64 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PACK = [sys.executable, "-c", "import sys; from vllm_tt.cli import main; main(sys.argv[1:])", "pack"]
KINDS = {
    "weights": "one file of noise, as weights are",
    "text": "files of text of 1 MB",
    "files": "files of text of 25 kB",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    arguments = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as room:
        for kind in KINDS if arguments.kind == "all" else [arguments.kind]:
            folder = bundle(Path(room) / kind, kind, arguments.megabytes)
            files = sorted(str(path) for path in folder.rglob("*") if path.is_file())
            hashing = timed(["sha256sum", *files], arguments.rounds)
            packing = timed(pack(folder, room), arguments.rounds)
            archive = Path(room, "out.tar.gz").stat().st_size
            ratio = packing.cpu / hashing.cpu
            good = ratio <= (2 if kind == "weights" else 3) and packing.memory <= 64 << 20
            bad += not good
            print(
                f"{KINDS[kind]}: {len(files)} files, {arguments.megabytes} MB -> {archive / 1e6:.0f} MB; "
                f"pack {packing.cpu:.2f} s ({packing.clock:.2f} on the clock), "
                f"sha256sum {hashing.cpu:.2f} s ({hashing.clock:.2f}), ratio {ratio:.2f}; "
                f"peak {packing.memory >> 20} MiB{'' if good else '  TOO MUCH'}"
            )
    return 1 if bad else 0


def pack(folder: Path, room: str) -> list[str]:
    out = str(Path(room, "out.tar.gz"))
    return [*PACK, str(folder), "--include-weights", "--max-size", "4G", "--no-progress", "-o", out]


@dataclass(frozen=True)
class Cost:
    """What a process took: seconds and bytes."""

    cpu: float
    clock: float
    memory: int


def timed(command: list[str], rounds: int) -> Cost:
    """The least of some rounds; the most memory."""
    costs = []
    for _ in range(rounds):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, command
        clock = time.perf_counter() - started
        costs.append(Cost(cpu=usage.ru_utime + usage.ru_stime, clock=clock, memory=usage.ru_maxrss << 10))
    return Cost(
        cpu=min(one.cpu for one in costs),
        clock=min(one.clock for one in costs),
        memory=max(one.memory for one in costs),
    )


def bundle(folder: Path, kind: str, megabytes: int) -> Path:
    folder.mkdir()
    metadata = {"arch": "LlamaForCausalLM", "main_class": "adapter:Model", "name": "bench"}
    (folder / "vllm_metadata.json").write_text(json.dumps(metadata))
    (folder / "adapter.py").write_text("class Model:\n    pass\n")
    rng = random.Random(0)
    if kind == "weights":
        with (folder / "model.safetensors").open("wb") as file:
            for _ in range(megabytes):
                file.write(rng.randbytes(1_000_000))
        return folder
    size = 1_000_000 if kind == "text" else 25_000
    words = [rng.randbytes(rng.randrange(1, 6)).hex() for _ in range(5000)]
    line = " ".join(rng.choice(words) for _ in range(size // 6))
    for number in range(megabytes * 1_000_000 // size):
        (folder / f"text_{number:05}.txt").write_text((f"{number} " + line)[:size])
    return folder


if __name__ == "__main__":
    sys.exit(main())
