"""``python -m tools.bench``."""

from tools.bench.cli import main

if __name__ == "__main__":
    main()
