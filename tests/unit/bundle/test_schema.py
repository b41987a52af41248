import json

import jsonschema
import pytest
from bundle_cases import INVALID, VALID, name

from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.jsontext import load
from vllm_tt.bundle.metadata import parse
from vllm_tt.bundle.schema import schema, schema_text

SHAPE = {"TB201", "TB202", "TB203", "TB206", "TB207", "TB208", "TB209", "TB211", "TB212"}
"""Rules that the schema can express."""


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())
    assert json.loads(schema_text()) == schema()


@pytest.mark.parametrize("case", VALID, ids=name)
def test_valid_bundles_fit_the_schema(case):
    jsonschema.validate(json.loads((case / "vllm_metadata.json").read_bytes()), schema())


@pytest.mark.parametrize("case", INVALID, ids=name)
def test_schema_and_parser_agree_about_shape(case):
    data = (case / "vllm_metadata.json").read_bytes()
    root = load(data).root
    if root is None:
        return
    errors = [
        found.code
        for found in parse(data).findings
        if found.severity is not Severity.NOTE and (found.code in SHAPE or "must be" in found.message)
    ]
    if case.name == "keyword-module":  # the schema knows no list of Python's keywords
        errors = []
    fits = jsonschema.Draft202012Validator(schema()).is_valid(root)
    assert fits == (not errors), errors
