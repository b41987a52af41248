from dataclasses import dataclass

import numpy as np
import pytest
import torch

from vllm_tt.conformance.pages import PageWatch


@dataclass
class Layer:
    keys: torch.Tensor
    note: str = "n"


class Holder:
    def __init__(self, value):
        self.value = value
        self.itself = self


CACHES = {
    "lists": lambda tensor: [[tensor, torch.zeros(3)]],
    "dataclass": lambda tensor: [Layer(tensor)],
    "mapping": lambda tensor: {"layer": (tensor,)},
    "object": Holder,
    "numpy": lambda tensor: tensor.numpy(),
}


@pytest.mark.parametrize("shape", CACHES)
def test_changed_pages_are_found_wherever_they_are(shape):
    tensor = torch.zeros(6, 2, 4)
    watch = PageWatch(CACHES[shape](tensor), 6)
    assert watch.sees
    assert watch.changed() == set()
    tensor[2, 1, 3] = 1.0
    tensor[5] = -0.5
    assert watch.changed() == {2, 5}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.float64])
def test_any_dtype_will_do(dtype):
    tensor = torch.zeros(4, 3, dtype=dtype)
    watch = PageWatch([tensor], 4)
    tensor[1, 0] = 1
    assert watch.changed() == {1}


@pytest.mark.parametrize("cache", [None, "kv cache", [torch.zeros(5, 2)], np.zeros(()), torch.zeros(4, 6).T])
def test_what_is_no_host_tensor_of_pages_is_not_seen(cache):
    watch = PageWatch(cache, 6)
    assert not watch.sees
    assert watch.changed() == set()
