"""The images of a request and the arguments that a prefill brings them to the model with."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt.contract import CALLS, IMAGE_FIELDS, MULTIMODAL
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vllm.multimodal.inputs import MultiModalFeatureSpec

__all__ = ["Image", "NoImageArgument", "UnsupportedModality", "image_arguments", "image_names", "images_of"]

_PIXELS = "pixel_values"
"""The field that only the step which computes an image needs."""
_NAMES_OF_PIXELS = (_PIXELS, "images")
_PREFILL = next(call for call in CALLS if call.method == "prefill_forward")


class NoImageArgument(ConfigError):
    """{owner}.prefill_forward() takes neither pixel_values nor images, though prompts of {architecture} may have
    images. If it serves text alone, declare "max_images_per_prompt": 0 in its model_capabilities.
    """


class UnsupportedModality(TTError):
    """Request {request!r} has {modality} input; adapters take text and images."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Image:
    """An image, as the processor of vLLM's model prepared it."""

    start: int
    """Position of its first placeholder token in the prompt."""
    end: int
    """Position past its last one."""
    fields: Mapping[str, Any]
    """``pixel_values``, ``image_grid_thw``, ...: tensors of this image alone; empty where vLLM no longer has them."""


def images_of(req_id: str, features: Iterable[MultiModalFeatureSpec]) -> tuple[Image, ...]:
    """The images among a request's multimodal features, in the prompt's order; raises UnsupportedModality."""
    images = []
    for one in features:
        if one.modality != "image":
            raise UnsupportedModality(request=req_id, modality=one.modality)
        start = one.mm_position.offset
        # A release of vLLM may drop what a cached prefix covers.
        fields = {} if one.data is None else one.data.get_data()
        images.append(Image(start=start, end=start + one.mm_position.length, fields=fields))
    return tuple(sorted(images, key=lambda image: image.start))


def image_names(adapter: Any, architecture: str, more: Iterable[str] = ()) -> tuple[str, ...]:
    """The arguments that bring images to an adapter's ``prefill_forward``; raises NoImageArgument.

    ``more``: those that it looks for without naming them.
    """
    parameters = inspect.signature(adapter.prefill_forward).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    named = {*parameters, *more}
    names = tuple(
        name
        for name, when in _PREFILL.sometimes.items()
        if (when == MULTIMODAL and (takes_any or name in named)) or (when == IMAGE_FIELDS and name in named)
    )
    if not set(names) & set(_NAMES_OF_PIXELS):
        raise NoImageArgument(owner=type(adapter).__name__, architecture=architecture)
    return names


def image_arguments(
    rows: Sequence[Sequence[Image]], starts: Sequence[int], names: Iterable[str]
) -> dict[str, list[list[Any] | None]]:
    """Keyword arguments of a prefill: under each of ``names``, for each row None or a value an image.

    ``rows`` are the images that begin before the end of each row's chunk, ``starts`` where the chunks begin. Of an
    image that lies before its chunk the pixels are None: its other fields tell positions still.
    """
    return {name: [_values(images, start, name) for images, start in zip(rows, starts, strict=True)] for name in names}


def _values(images: Sequence[Image], start: int, name: str) -> list[Any] | None:
    if name not in _NAMES_OF_PIXELS:
        values = [image.fields.get(name) for image in images]
        return values if any(value is not None for value in values) else None
    return [None if image.end <= start else image.fields.get(_PIXELS) for image in images] or None
