import pytest

from vllm_tt.bundle.hub.card import FrontMatterUnreadable, new_card, with_tags
from vllm_tt.bundle.metadata import parse

TAGS = ("vllm", "tt-bundle")

MERGED = {
    "nothing": ("", "---\ntags:\n- vllm\n- tt-bundle\n---\n"),
    "no-front-matter": ("# Hi\n", "---\ntags:\n- vllm\n- tt-bundle\n---\n# Hi\n"),
    "no-tags": (
        "---\nlicense: mit # why\npipeline_tag: x\n---\n# Hi\n",
        "---\nlicense: mit # why\npipeline_tag: x\ntags:\n- vllm\n- tt-bundle\n---\n# Hi\n",
    ),
    "block": (
        "---\ntags:\n  - a\n\n# note\nlicense: mit\n---\nx",
        "---\ntags:\n- a\n- vllm\n- tt-bundle\n\n# note\nlicense: mit\n---\nx",
    ),
    "flow": (
        "---\ntags: [a,\n  vllm]\nlicense: mit\n---\n",
        "---\ntags:\n- a\n- vllm\n- tt-bundle\nlicense: mit\n---\n",
    ),
    "one": ("---\ntags: a\n---\n", "---\ntags:\n- a\n- vllm\n- tt-bundle\n---\n"),
    "null": ("---\nlicense: mit\ntags:\n---\n", "---\nlicense: mit\ntags:\n- vllm\n- tt-bundle\n---\n"),
    "empty": ("---\n---\nx", "---\ntags:\n- vllm\n- tt-bundle\n---\nx"),
    "windows": (
        "---\r\nlicense: mit\r\n---\r\nx\r\n",
        "---\r\nlicense: mit\r\ntags:\r\n- vllm\r\n- tt-bundle\r\n---\r\nx\r\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), MERGED.values(), ids=MERGED)
def test_tags_are_added_and_nothing_else_changes(before, after):
    assert with_tags(before, TAGS) == after
    assert with_tags(after, TAGS) == after


@pytest.mark.parametrize("front", ["tags:\n- a: 1", "tags: {a: 1}", "- a", "{a: 1}", ": : :\n\t- {", "tags: *x"])
def test_front_matter_that_cannot_be_read(front):
    with pytest.raises(FrontMatterUnreadable) as error:
        with_tags(f"---\n{front}\n---\n", TAGS)
    assert str(error.value) == "The front matter of README.md cannot be read as YAML with a list of tags."


def test_a_new_card():
    metadata = parse(
        b'{"arch": "A", "main_class": "m:C", "license": "Apache-2.0", "hf_weights": "org/w", "tags": ["vllm", "x"],'
        b' "description": "It works."}'
    ).metadata
    assert new_card("mine", "org/name", metadata, TAGS) == (
        "---\nlicense: apache-2.0\nbase_model: org/w\ntags:\n- vllm\n- tt-bundle\n- x\n---\n\n# mine\n\nIt works.\n\n"
        "A vLLM model bundle for Tenstorrent devices: `m:C` serves A.\n\n```\ntt-bundle pull org/name\n```\n"
    )


def test_a_license_that_the_hub_would_refuse_is_left_out():
    metadata = parse(b'{"arch": "A", "main_class": "m:C", "license": "Own-1.0", "hf_weights": "/home/w"}').metadata
    assert new_card("mine", "org/name", metadata, TAGS).startswith("---\ntags:\n- vllm\n- tt-bundle\n---\n")
