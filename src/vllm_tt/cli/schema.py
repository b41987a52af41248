"""``tt-bundle schema``."""

from __future__ import annotations

import click

from vllm_tt.bundle.schema import schema_text

__all__ = ["command"]


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of vllm_metadata.json, for editors and other tools."""
    click.echo(schema_text(), nl=False)
