"""``python -m tools.dashboard``."""

from tools.dashboard.grafana import PATH, text

if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
