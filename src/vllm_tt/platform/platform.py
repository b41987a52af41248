"""The platform class that vLLM talks to: hooks of one or two lines.

vLLM imports this module while it is itself half imported, so nothing but its platform interface may
be imported here; and ``vllm`` must be imported before this module.
"""

# ruff: noqa: ARG003 - the hooks' signatures are vLLM's

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.platforms.interface import Platform, PlatformEnum

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

__all__ = ["TTPlatform"]


class TTPlatform(Platform):
    """Tenstorrent meshes: one engine and one worker drive all devices of a mesh."""

    _enum = PlatformEnum.OOT
    device_name: str = "tt"
    device_type: str = "tt"
    dispatch_key: str = "CPU"
    device_control_env_var: str = "TT_VISIBLE_DEVICES"
    simple_compile_backend: str = "eager"
    supported_quantization: ClassVar[list[str]] = []
    """Empty allows every format: reading a checkpoint is the adapter's business."""

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float32]

    @classmethod
    def pre_register_and_update(cls, parser: FlexibleArgumentParser | None = None) -> None:
        from vllm_tt import emulation
        from vllm_tt.platform import arguments, compat, parsers

        compat.pin_v1_runner()
        compat.default_to_spawn()
        if parser is None:
            emulation.prepare()
        else:
            arguments.add_retired(parser)
            arguments.prefer_one_front_end(parser)
            arguments.tell_no_choice(parser)
            compat.when_configured(parsers.hand_over)

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: VllmConfig) -> None:
        cls.check_and_update_config(vllm_config)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        from vllm_tt.platform import compat, settle

        compat.pin_v1_runner()
        settle.settle(vllm_config)

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        from vllm_tt.platform.refusals import refuse_request

        refuse_request(params)

    def uses_host_device_handling(self) -> bool:
        return True

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def get_compile_backend(cls) -> str:
        """Nothing is compiled; with any other name vLLM warns at each start that the user disabled inductor."""
        return "inductor"

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "Tenstorrent"

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return f"tt-{device_id}"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """DRAM of a Wormhole chip in bytes; vLLM chooses its default batch sizes by it."""
        return 12 * 1024**3

    @classmethod
    def inference_mode(cls) -> Any:
        return torch.no_grad()

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """The worker opens the mesh itself."""

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Sampling on the host draws from torch's own generators, which vLLM seeds."""

    @classmethod
    def import_kernels(cls) -> None:
        """There are none."""
