"""How long ``tt-bundle validate`` takes on one bundle, as a whole process.

    python tools/bench_validate.py [BUNDLE] [--rounds 10]

The figure is the best of the rounds with bytecode cached, as an installed package has it. Fails above 250 ms.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 0.25
COMMAND = [sys.executable, "-c", "import sys; from vllm_tt.cli import main; main(sys.argv[1:])", "validate"]
SHIPPED = Path(__file__).parents[1] / "bundles" / "llama-host"


def rounds(bundle, count):
    """Seconds of each of ``count`` runs, after one that fills the cache."""
    with tempfile.TemporaryDirectory() as cache:
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        times = []
        for _ in range(count + 1):
            started = time.perf_counter()
            subprocess.run([*COMMAND, bundle], check=True, env=environ, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - started)
    return times[1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", nargs="?", default=str(SHIPPED))
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    times = rounds(asked.bundle, asked.rounds)
    best, median = (f"{one * 1000:.0f} ms" for one in (min(times), statistics.median(times)))
    print(f"best {best}, median {median} (limit {LIMIT * 1000:.0f} ms)")
    sys.exit(min(times) > LIMIT)


if __name__ == "__main__":
    main()
