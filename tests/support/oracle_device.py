"""What the oracle's device declares, for engines in this process."""

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from vllm_tt.models.registry import registry

ARCH = "TTPagedHashForCausalLM"
CACHES = {"supports_prefix_caching": True, "supports_chunked_prefill": True}
SAMPLES = CACHES | {"supports_async_decode": True, "supports_sample_on_device": True}


@contextmanager
def device(capabilities, *, contract=None, **environ):
    """The oracle with these capabilities, in every engine made within.

    ``environ``: the oracle's environment variables without ``PAGED_HASH_``.
    """
    entries = registry().entries
    entry = entries[ARCH]
    oracle = entry.load()
    # A class of its own for each declaration: what a class declares is looked up once.
    facts = "_".join(f"{name}_{value}" for name, value in sorted((capabilities | {"contract": contract}).items()))
    name = f"{oracle.__name__}_{facts}"
    declared = {"model_capabilities": capabilities, "decode_input_update_contract": contract}
    setattr(sys.modules[oracle.__module__], name, type(name, (oracle,), declared))
    variant = replace(entry, main_class=f"{entry.main_class.partition(':')[0]}:{name}")
    with (
        patch.dict(os.environ, {f"PAGED_HASH_{key}": str(value) for key, value in environ.items()}),
        patch.dict(entries, {ARCH: variant}),
    ):
        yield
