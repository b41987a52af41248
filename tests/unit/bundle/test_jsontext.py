import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_tt.bundle.findings import finding
from vllm_tt.bundle.jsontext import MAX_BYTES, load, located


def only_message(data):
    (found,) = load(data).findings
    return found.text


def test_a_file_over_the_limit_is_not_parsed():
    assert only_message(b" " * (MAX_BYTES + 1)) == "1048577 bytes; the limit is 1048576"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_nesting_beyond_any_stack_is_a_finding(opening):
    assert only_message(opening * 150_000) == "nested too deeply"


def test_the_nesting_limit_does_not_depend_on_the_stack():
    def nested(depth):
        return json.dumps({"x": eval("[" * depth + "]" * depth)}).encode()

    assert load(nested(62)).root is not None
    assert only_message(nested(64)) == "nested too deeply"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("   \n", "vllm_metadata.json:1:1: not valid JSON: the file is empty"),
        ('{"a": 1,\n}', "vllm_metadata.json:1:8: not valid JSON: trailing comma"),
        ('{"a": [1, 2, ]}', "vllm_metadata.json:1:12: not valid JSON: trailing comma"),
        ('{"a": 1 # one\n}', "vllm_metadata.json:1:9: not valid JSON: comments are not allowed"),
        ('{"a": /* one */ 1}', "vllm_metadata.json:1:7: not valid JSON: comments are not allowed"),
        ("{'a': 1}", "vllm_metadata.json:1:2: not valid JSON: strings need double quotes"),
        ('{"a": 1} x', "vllm_metadata.json:1:10: not valid JSON: extra data"),
    ],
)
def test_common_mistakes_are_named_with_their_place(text, message):
    assert only_message(text.encode()) == message


def test_keys_are_found_under_lists_and_behind_text_that_looks_like_json():
    text = '{\n "a": "{\\"b\\": [,",\n "c": [{"d": 1},\n   {"d": 2}]\n}'
    key = finding("TB210", "unknown key", key=("c", "1", "d"))
    (found,) = located((key,), text)
    assert (found.line, found.column) == (4, 5)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    loaded = load(data)
    assert (loaded.root is None) <= bool(loaded.findings)


@given(
    st.dictionaries(
        st.text(max_size=5), st.recursive(st.none() | st.booleans() | st.text(max_size=5), st.lists, max_leaves=5)
    )
)
def test_what_json_writes_is_read_back(value):
    assert load(json.dumps(value).encode()).root == value


def test_the_interpreter_has_a_digit_limit():
    assert sys.get_int_max_str_digits() > 0
    assert only_message(b'{"x": ' + b"9" * 5000 + b"}") == "an integer of 5000 digits"
