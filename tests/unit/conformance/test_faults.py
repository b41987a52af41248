from pathlib import Path

import pytest

from vllm_tt.conformance.faults import cause_text, described, source_line
from vllm_tt.errors import TTError

HERE = Path(__file__).parent


class Known(TTError):
    """{what} is wrong,
    in two lines.
    """


def caught(raising):
    with pytest.raises(Exception) as info:
        raising()
    return info.value


def test_the_last_line_of_the_folder_is_named():
    def outer():
        Path("/no/such/file").read_text()

    error = caught(outer)
    line = outer.__code__.co_firstlineno + 1
    assert source_line(error, HERE) == f'test_faults.py:{line}, Path("/no/such/file").read_text()'
    assert described(error, HERE).startswith("FileNotFoundError: [Errno 2]")


def test_without_a_line_of_the_folder_the_last_one_is_named():
    error = caught(lambda: Path("/no/such/file").read_text())
    assert "pathlib" in source_line(error, Path("/nowhere"))
    assert source_line(ValueError("never raised"), HERE) == ""


def test_ttnns_errors_are_cut_to_what_they_say():
    error = RuntimeError(
        "TT_FATAL @ /project/ttnn/cpp/matmul.cpp:79: a_shape[-1] == b_shape[-2]\ninfo:\n"
        "The width of the first tensor must be equal.\nMismatch: width=64 height=32\nbacktrace:\n --- ttnn::x\n"
    )
    assert cause_text(error) == (
        "a_shape[-1] == b_shape[-2]: The width of the first tensor must be equal. Mismatch: width=64 height=32"
    )


def test_our_own_errors_say_all_there_is():
    assert described(Known(what="it"), HERE) == "it is wrong, in two lines"
