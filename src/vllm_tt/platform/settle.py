"""Settles a configuration: refuse, look the model up, adjust, report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.config import TTConfig
from vllm_tt.log import get_logger
from vllm_tt.platform import ending, engine_start, lanes, parsers, ranks, report
from vllm_tt.platform.compat import is_further_front_end
from vllm_tt.platform.policies import Change, Model, adjust
from vllm_tt.platform.refusals import REFUSALS
from vllm_tt.platform.settled import is_settled

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["settle"]

log = get_logger(__name__)


def settle(config: VllmConfig) -> None:
    """Make ``config`` one that the platform can serve, or raise; repeating it changes nothing."""
    from vllm_tt.models import registry

    if config.model_config is None:
        return
    options = TTConfig.from_additional_config(config.additional_config)
    env.MESH_DEVICE.get()
    for refuse in REFUSALS:
        refuse(config)
    entry = registry.select(config.model_config, test_models=options.register_test_models)
    model = Model(name=entry.arch, capabilities=entry.capabilities())
    changes = adjust(config, model)
    if not is_settled(config):
        lanes.fold(config, model.name, model.capabilities)
        ranks.spread(config)
        ending.allow_closing(config)
        if declared := parsers.declare(config, entry):
            changes.append(Change(declared))
        if doubt := entry.doubt():
            changes.append(Change(doubt, logging.WARNING))
        changes.append(Change(report.describe(config, model)))
        if not is_further_front_end(config) and (start := engine_start.settle_start(config)):
            changes.append(start)
    if not is_further_front_end(config):
        for change in changes:
            log.log(change.level, "%s", change.text)
