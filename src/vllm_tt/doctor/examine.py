"""The whole examination, in the order of the report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_tt.doctor.device import devices
from vllm_tt.doctor.installed import entry_points, packages
from vllm_tt.doctor.settings import bundles, variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_tt.doctor.item import Item

__all__ = ["examine"]


def examine(environ: Mapping[str, str] | None = None) -> list[Item]:
    """Look at everything; never raises for what is found."""
    environ = os.environ if environ is None else environ
    return [*packages(), *entry_points(), *variables(environ), *devices(environ), *bundles(environ)]
