"""Multimodal features of requests, made of vLLM's own types."""

import torch
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)


def feature(offset, length, *, modality="image", name="an image", **fields):
    """An input at a place of the prompt; without ``fields`` one whose data vLLM has dropped."""
    elements = {
        key: MultiModalFieldElem(data=torch.tensor(value), field=MultiModalBatchedField())
        for key, value in fields.items()
    }
    return MultiModalFeatureSpec(
        data=MultiModalKwargsItem(elements) if elements else None,
        modality=modality,
        identifier=name,
        mm_position=PlaceholderRange(offset=offset, length=length),
    )
