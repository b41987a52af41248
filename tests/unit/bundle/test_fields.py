import pytest

from vllm_tt.bundle import fields
from vllm_tt.bundle.metadata import Limits


def read_one(reader, value):
    findings = []
    values = fields.read({"key": reader}, {"key": value}, findings)
    return values.get("key", "dropped"), [found.message for found in findings]


@pytest.mark.parametrize(
    ("reader", "value", "result"),
    [
        (fields.text(3), "abc", "abc"),
        (fields.text(3, empty=True), "", ""),
        (fields.integer(0), 0, 0),
        (fields.texts(each=3), ["a", "b", "a"], ("a", "b")),
        (fields.words(4), ["a", 1, 2.5, True], ("a", "1", "2.5", "true")),
        (fields.environment(), {"A": 1, "B": None, "C": False}, {"A": "1", "B": None, "C": "false"}),
        (fields.environment(), None, {}),
        (fields.mapping(), {"a": []}, {"a": []}),
        (fields.optional(fields.text()), None, "dropped"),
        (fields.record(Limits, {"block_size": fields.integer(1)}), {"block_size": 2}, Limits(block_size=2)),
        (fields.each(fields.integer(0)), {"BH-Galaxy": 1}, {"BH-Galaxy": 1}),
    ],
)
def test_good_values(reader, value, result):
    assert read_one(reader, value) == (result, [])


@pytest.mark.parametrize(
    ("reader", "value", "wanted"),
    [
        (fields.text(3), "abcd", "a non-empty string of at most 3 characters, got 'abcd'"),
        (fields.text(3), "", "a non-empty string of at most 3 characters, got ''"),
        (fields.text(), None, "a non-empty string of at most 512 characters, got null"),
        (fields.integer(1), True, "an integer of at least 1, got true"),
        (fields.integer(1), 2.0, "an integer of at least 1, got 2.0"),
        (fields.integer(1), "2", "an integer of at least 1, got '2'"),
        (fields.texts(each=3), ["a", ""], "a list of strings, got ['a', '']"),
        (fields.words(3), [], "a non-empty list, got []"),
        (fields.words(3), ["a", None], "a non-empty list, got ['a', None]"),
        (fields.environment(), {"A": []}, "an object of strings, got an object"),
        (fields.mapping(), [], "an object, got []"),
    ],
)
def test_wrong_values_are_dropped_with_what_was_wanted(reader, value, wanted):
    assert read_one(reader, value) == ("dropped", [f"'key' must be {wanted}; ignored"])


def test_keys_of_the_authors_own_are_left_alone():
    findings = []
    assert fields.read({"hf_weights": fields.text()}, {"x-note": 1, "hf_weight": "a"}, findings) == {}
    assert [(found.message, found.hint) for found in findings] == [
        ("unknown key 'hf_weight'", "did you mean 'hf_weights'?")
    ]
