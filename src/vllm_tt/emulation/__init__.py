"""The real ttnn without hardware: emulated machines, chosen with TT_EMULATE."""

from vllm_tt.emulation.descriptors import MACHINES
from vllm_tt.emulation.environment import prepare
from vllm_tt.emulation.stand_ins import install_stand_ins

__all__ = ["MACHINES", "install_stand_ins", "prepare"]
