"""The environment that all tests share: an emulated N300, the oracle's bundle and no network."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports vLLM, which resolves the platform as it is imported.
os.environ.setdefault("TT_EMULATE", "N300")
os.environ["EXTRA_MODELS_DIR"] = str(Path(__file__).parent / "bundles_for_serving")
os.environ["PAGED_HASH_CAPABILITIES"] = "supports_prefix_caching,supports_chunked_prefill,supports_async_decode"
os.environ["HF_HUB_OFFLINE"] = "1"
# Before torch is loaded: threads that spin at barriers stall each other when tests run beside other work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["VLLM_NO_USAGE_STATS"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"

# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Keep a file's tests in one process, for its fixtures, and all servers in one, for the machine."""
    for item in items:
        group = "server" if item.get_closest_marker("server") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
