import pytest

from vllm_tt.cli.exits import Exit, exit_code
from vllm_tt.errors import ConfigError, TTError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TTError(message="x"), Exit.FINDINGS),
        (ConfigError(message="x"), Exit.USAGE),
        (ConnectionRefusedError(), Exit.NETWORK),
        (PermissionError(), Exit.LOCAL_IO),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (ZeroDivisionError(), None),
    ],
)
def test_codes(error, code):
    assert exit_code(error) is code


def test_an_error_class_may_name_its_code():
    class Unreachable(TTError):
        """The Hub does not answer."""

        exit_code = Exit.NETWORK

    assert exit_code(Unreachable()) is Exit.NETWORK
