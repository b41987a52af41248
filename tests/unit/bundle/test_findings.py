import pytest

from vllm_tt.bundle.findings import RULES, Reader, Severity, finding, shown


def test_codes_are_listed_once_and_in_order():
    assert list(RULES) == sorted(RULES)


def test_a_finding_takes_severity_and_reader_from_its_rule():
    found = finding("TB201", "'arch' is empty", key=("arch",))
    assert (found.severity, found.reader, found.key) == (Severity.ERROR, Reader.SKIP, ("arch",))


def test_the_reader_can_be_milder_than_the_rule():
    found = finding("TB203", "no", reader=Reader.WARN)
    assert (found.severity, found.reader) == (Severity.WARNING, Reader.WARN)


def test_what_the_reader_skips_for_and_what_is_an_error_are_one():
    mine = [rule for code, rule in RULES.items() if code[:3] in ("TB1", "TB2")]
    assert [rule.code for rule in mine if (rule.severity is Severity.ERROR) != (rule.reader is Reader.SKIP)] == []


def test_the_text_begins_with_the_place():
    found = finding("TB303", "no class")
    assert found.text == "no class"
    assert found.at("adapter.py", 3).text == "adapter.py:3: no class"
    assert found.at("adapter.py", 3, 5).text == "adapter.py:3:5: no class"


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


def test_secrets_are_never_shown():
    token = "hf_" + "a1B2" * 10
    assert shown({"HF_TOKEN": token}) == "{'HF_TOKEN': '<a Hugging Face token>'}"
    assert shown("x" * 60 + " " + token) == "'" + "x" * 60 + " <a Hugging Fac...'"
    assert shown("-----BEGIN RSA PRIVATE KEY-----\nMIIE") == "'<a private key>"
    found = finding("TB216", f"launch.default sets {token}", hint=token)
    assert (found.message, found.hint) == ("launch.default sets <a Hugging Face token>", "<a Hugging Face token>")
