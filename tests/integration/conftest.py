"""The oracle's bundle and checkpoint, for engines in this process."""

import pytest
from oracle import write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("oracle") / "model")
