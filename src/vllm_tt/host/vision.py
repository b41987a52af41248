"""A vision tower whose blocks attend within windows of an image or over all of it, as in Qwen2.5-VL.

Patches come in the order of the tokens they are merged into: those of one token follow one another. They keep it
throughout; attention alone knows where in the image they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

from vllm_tt.host.frequencies import Rope, inverse_frequencies
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.norm import RMSNorm
from vllm_tt.host.rotary import rotate

if TYPE_CHECKING:
    from typing import TypeAlias

    Groups: TypeAlias = list[torch.Tensor]
    """The patches that attend to one another: for each size of group, their indices [groups, size]."""

__all__ = ["VisionTower", "groups_of", "patch_places"]

_EPS, _THETA = 1e-6, 10000.0
"""Of the tower's norms and rotation; the configurations of checkpoints do not have them."""


def patch_places(grid: torch.Tensor, merge: int) -> torch.Tensor:
    """Frame, row and column of each patch of an image with ``grid`` [3], int64 [3, patches]."""
    frames, rows, columns = grid.tolist()
    places = torch.cartesian_prod(*map(torch.arange, (frames, rows, columns))).T
    return places.view(3, frames, rows // merge, merge, columns // merge, merge).transpose(3, 4).flatten(1)


def groups_of(labels: torch.Tensor) -> Groups:
    """The patches with the same label, of ``labels`` [k, patches], together."""
    _, group = labels.unique(dim=1, return_inverse=True)
    sizes = group.bincount()
    members = group.argsort(stable=True).split(sizes.tolist())
    return [torch.stack([one for one in members if len(one) == size]) for size in sizes.unique().tolist()]


class PatchEmbedding(nn.Module):
    """A convolution whose windows do not overlap, with the parameters of one."""

    def __init__(self, channels: int, size: int, *, patch: tuple[int, int, int]) -> None:
        super().__init__()
        self.proj = nn.Conv3d(channels, size, patch, stride=patch, bias=False)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """From pixels of patches [patches, channels x patch] to hidden states [patches, hidden size]."""
        weight = self.proj.weight
        return linear(patches.to(weight.dtype), weight.flatten(1))


class VisionAttention(nn.Module):
    """Attention of every patch to all of its group."""

    def __init__(self, hidden_size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.proj = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], groups: Groups
    ) -> torch.Tensor:
        """From and to hidden states [patches, hidden size]; ``rotation`` is float32."""
        queries, keys, values = self.qkv(hidden).view(len(hidden), 3, self.heads, -1).unbind(1)
        queries, keys = (rotate(x.float(), rotation).to(x.dtype) for x in (queries, keys))
        out = torch.empty_like(values)
        for rows in groups:
            attended = scaled_dot_product_attention(*(x[rows].transpose(1, 2) for x in (queries, keys, values)))
            out[rows] = attended.transpose(1, 2)
        return self.proj(out.flatten(1))


class VisionBlock(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        size = config.hidden_size
        self.norm1, self.norm2 = RMSNorm(size, _EPS), RMSNorm(size, _EPS)
        self.attn = VisionAttention(size, config.num_heads)
        self.mlp = GatedMLP(size, config.intermediate_size, activation=config.hidden_act, bias=True)

    def forward(
        self, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], groups: Groups
    ) -> torch.Tensor:
        hidden = hidden + self.attn(self.norm1(hidden), rotation, groups)
        return hidden + self.mlp(self.norm2(hidden))


class PatchMerger(nn.Module):
    """Neighbouring patches become one token of the language model."""

    def __init__(self, size: int, out_size: int, *, patches: int) -> None:
        super().__init__()
        self.merged = size * patches
        self.ln_q = RMSNorm(size, _EPS)
        self.mlp = nn.Sequential(nn.Linear(self.merged, self.merged), nn.GELU(), nn.Linear(self.merged, out_size))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.ln_q(hidden).view(-1, self.merged))


class VisionTower(nn.Module):
    """Images to tokens, with the parameter names of Qwen2.5-VL checkpoints."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.merge = config.spatial_merge_size
        self.window = config.window_size // (self.merge * config.patch_size) * self.merge
        self.full = frozenset(config.fullatt_block_indexes)
        patch = (config.temporal_patch_size, config.patch_size, config.patch_size)
        self.patch_embed = PatchEmbedding(config.in_channels, config.hidden_size, patch=patch)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.merger = PatchMerger(config.hidden_size, config.out_hidden_size, patches=self.merge**2)
        half = config.hidden_size // config.num_heads // 2
        with torch.device("cpu"):  # models are built on the meta device
            rope = Rope(kind="default", dim=half, theta=_THETA, max_positions=0, values={})
            self._frequencies, _ = inverse_frequencies(rope)

    def forward(self, patches: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        """One image: ``patches`` [t x h x w, pixels of a patch] of ``grid`` (t, h, w) to [tokens, out size]."""
        places = patch_places(grid, self.merge)
        frames = places[:1]
        windows = torch.cat((frames, places[1:] // self.window))
        over_all, in_windows = groups_of(frames), groups_of(windows)
        rotation = self._rotation(places[1:])
        hidden = self.patch_embed(patches)
        for i, block in enumerate(self.blocks):
            hidden = block(hidden, rotation, over_all if i in self.full else in_windows)
        return self.merger(hidden)

    def _rotation(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Half of a head's pairs turn by the row, half by the column: [patches, 1, head size]."""
        angles = (places[..., None].float() * self._frequencies).transpose(0, 1).flatten(1)
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return angles.cos(), angles.sin()
