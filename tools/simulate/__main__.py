"""``python -m tools.simulate``."""

from tools.simulate.cli import main

if __name__ == "__main__":
    main()
