"""Ranks: standard data parallelism, an engine process with a device group of its own for each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.errors import ConfigError
from vllm_tt.log import get_logger
from vllm_tt.platform.compat import is_further_front_end
from vllm_tt.platform.discovery import DeviceGroup, discover
from vllm_tt.platform.settled import keep, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig

__all__ = ["GroupsDiffer", "MoEDataParallel", "VisibleNames", "bind", "device_groups", "spread"]

log = get_logger(__name__)


class MoEDataParallel(ConfigError):
    """--data-parallel-size {size} is not available for {model}, a mixture of experts: vLLM runs the ranks of such a
    model in lock step, which one engine on one mesh does not need. Leave out --data-parallel-size; the model
    spreads its experts over the mesh that MESH_DEVICE names.
    """


class VisibleNames(ConfigError):
    """TT_VISIBLE_DEVICES={given} cannot be shared out among {ranks} engines: write it as device ids, such as 0,1,2,3,
    or unset it to use all devices.
    """


class GroupsDiffer(ConfigError):
    """{source} {given} disagrees with the device groups of --data-parallel-size {ranks}, which are {groups}: an
    engine gets a whole group. {remedy}
    """


def spread(config: VllmConfig) -> None:
    """In the server's process: settle which devices each engine opens; looks for them when there are several engines.

    Further front ends start no engine and have no use for it.
    """
    parallel = config.parallel_config
    ranks, given = parallel.data_parallel_size, parallel.assigned_physical_gpu_ids
    if ranks > 1 and config.model_config.is_moe:
        raise MoEDataParallel(size=ranks, model=config.model_config.model)
    if is_further_front_end(config):
        return
    if ranks == 1:
        groups = [DeviceGroup(tuple(given))] if given else []
    else:
        visible = _visible(ranks) if given is None else tuple(given)
        groups = list(discover(ranks, visible))
        _check_agreement(groups, visible, given)
    keep(config, groups=[group.to_dict() for group in groups])


def device_groups(config: VllmConfig) -> tuple[DeviceGroup, ...]:
    """The groups of the engines, by rank; none when one engine opens what it sees."""
    return tuple(DeviceGroup.from_dict(group) for group in state_of(config).get("groups", ()))


def bind(config: VllmConfig) -> DeviceGroup | None:
    """In an engine's process, before it asks the runtime for devices: make it see its own group alone."""
    groups = device_groups(config)
    if not groups:
        return None
    rank = config.parallel_config.data_parallel_index
    os.environ[env.VISIBLE_DEVICES.name] = str(groups[rank])
    mesh = f", a {groups[rank].grid} mesh" if groups[rank].grid else ""
    log.info("Engine %d of %d has the devices %s%s", rank, len(groups), groups[rank], mesh)
    return groups[rank]


def _visible(ranks: int) -> tuple[int, ...] | None:
    given = env.VISIBLE_DEVICES.get()
    if given is None:
        return None
    try:
        return tuple(int(one) for one in given.split(","))
    except ValueError:
        raise VisibleNames(given=given, ranks=ranks) from None


def _check_agreement(
    groups: Sequence[DeviceGroup], visible: Sequence[int] | None, listed: Sequence[int] | None
) -> None:
    """Each engine gets a whole group: what the operator listed must be just that."""
    found = sorted(device for group in groups for device in group.devices)
    facts = {"ranks": len(groups), "groups": " and ".join(map(str, groups))}
    flat = " ".join(str(device) for group in groups for device in group.devices)
    if listed is not None:
        size = max(len(listed) // len(groups), 1)
        parts = [sorted(listed[first : first + size]) for first in range(0, len(listed), size)]
        if parts != [sorted(group.devices) for group in groups]:
            given = " ".join(map(str, listed))
            raise GroupsDiffer(source="--device-ids", given=given, **facts, remedy=f"Write --device-ids {flat}.")
    elif visible is not None and sorted(set(visible)) != found:
        given, remedy = ",".join(map(str, visible)), f"Set TT_VISIBLE_DEVICES={','.join(map(str, found))}."
        raise GroupsDiffer(source="TT_VISIBLE_DEVICES", given=given, **facts, remedy=remedy)
