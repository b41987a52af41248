import pytest

from vllm_tt.bundle.explain import EXPLANATIONS, nearest_codes
from vllm_tt.bundle.findings import RULES


def test_every_rule_is_explained_and_nothing_else():
    assert list(EXPLANATIONS) == list(RULES)


@pytest.mark.parametrize("code", RULES)
def test_an_explanation_is_cause_example_and_fix(code):
    one = EXPLANATIONS[code]
    assert one.cause.endswith(".")
    assert one.fix.endswith(".")
    assert one.example
    assert "\n" not in one.cause + one.example + one.fix


def test_codes_that_look_alike():
    assert nearest_codes("TB2011")[0] in ("TB201", "TB211")
