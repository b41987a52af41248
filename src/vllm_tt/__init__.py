"""An out-of-tree vLLM platform plugin that serves models on Tenstorrent meshes.

Importing the package loads nothing of vLLM, torch or ttnn: vLLM imports it in every process, and
the bundle toolkit runs where none of the three is installed.
"""

from vllm_tt._version import __version__

__all__ = ["__version__"]
