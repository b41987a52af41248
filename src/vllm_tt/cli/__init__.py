"""The command line ``tt-bundle``: the only place that prints and exits."""

from vllm_tt.cli.group import main

__all__ = ["main"]
