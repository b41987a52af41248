"""The JSON Schema of ``vllm_metadata.json``: what editors check while an author types.

The reader does not use it: its own checks give better messages and load nothing. Tests hold the two
to one corpus.
"""

from __future__ import annotations

import json
from typing import Any

from vllm_tt._data import data_path

__all__ = ["SCHEMA_FILE", "schema", "schema_text"]

SCHEMA_FILE = "schemas/vllm_metadata.schema.json"


def schema_text() -> str:
    """The schema as shipped."""
    return data_path(SCHEMA_FILE).read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """The schema, parsed."""
    parsed: dict[str, Any] = json.loads(schema_text())
    return parsed
