import pytest

from vllm_tt.bundle.findings import RULES, Reader, Severity, finding, shown


def test_codes_are_listed_once_and_in_order():
    assert list(RULES) == sorted(RULES)


def test_a_finding_takes_severity_and_reader_from_its_rule():
    found = finding("TB104", "duplicate key 'arch'", key=("arch",))
    assert (found.severity, found.reader, found.key) == (Severity.ERROR, Reader.WARN, ("arch",))


def test_the_reader_can_be_milder_than_the_rule():
    assert finding("TB203", "no", reader=Reader.WARN).reader is Reader.WARN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "'plain'"),
        ("two\nlines", r"'two\nlines'"),
        ("\x1b[31mred", r"'\x1b[31mred'"),
        ("safe\u202etxet", r"'safe\u202etxet'"),
        ("\ud800", r"'\ud800'"),
        ("x" * 90, "'" + "x" * 75 + "...'"),
    ],
)
def test_values_are_shown_on_one_line_without_surprises(value, text):
    assert shown(value) == text
