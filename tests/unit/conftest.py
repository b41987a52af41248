"""A sandbox for processes on emulated machines; the cache folder is shared, so firmware is made once."""

import pytest
from sandbox import Sandbox


@pytest.fixture(scope="session")
def emulation_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("emulation-cache")


@pytest.fixture
def sandbox(tmp_path, emulation_cache):
    return Sandbox(tmp_path / "sandbox", emulation_cache)
