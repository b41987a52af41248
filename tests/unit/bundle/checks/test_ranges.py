import pytest

from vllm_tt.bundle.checks.ranges import is_empty


@pytest.mark.parametrize(
    "text",
    [
        ">=2,<1",
        "==1.*,!=1.*",
        ">1,<=1",
        ">=2.0,<2.0",
        "==1.0,==2.0",
        ">=1!1,<1!0",
        "~=1.4,<1.4",
        ">=2.0a1,<2.0",
        "<0.dev0",
    ],
)
def test_no_version_meets(text):
    assert is_empty(text)


@pytest.mark.parametrize(
    "text",
    ["", ">=1,<2", ">=3.10", "!=1.0", "~=1.4", ">1.0,<1.0.1", ">=10,<11", ">=0.25,<1", "===any", ">0,<1",
     "==1.0+local", ">=1!0,<1!1", "not a range"],
)  # fmt: skip
def test_some_version_meets_or_the_range_is_none(text):
    assert not is_empty(text)
