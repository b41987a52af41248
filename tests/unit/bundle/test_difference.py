import json

import pytest

from vllm_tt.bundle.difference import SeveralBundles, difference
from vllm_tt.bundle.inspection import inspect

ADAPTER = "class Model:\n    model_capabilities = {caps}\n    def decode_forward(self, {args}): ...\n"


@pytest.fixture
def pair(add):
    first = add("first", name="mine", version="1.0", requires={"vllm": ">=0.25"}, hf_weights="a/b")
    second = add("second", name="mine", version="1.1", requires={"vllm": ">=0.26"}, mesh_devices=["N300"])
    caps = '{"supports_prefix_caching": True, "max_device_top_k": 32}'
    (first / "adapter.py").write_text(ADAPTER.format(caps=caps, args="tokens, start_pos"))
    (second / "adapter.py").write_text(ADAPTER.format(caps='{"supports_prefix_caching": False}', args="tokens, **kw"))
    (first / "gone.py").write_text("")
    (second / "new.py").write_text("x")
    return first, second


def changes(first, second):
    found = difference(inspect(first), inspect(second), names=("A", "B"))
    return [(one.section, one.name, one.before, one.after) for one in found]


def test_everything_that_differs(pair):
    found = changes(*pair)
    assert found[:8] == [
        ("metadata", "hf_weights", "a/b", None),
        ("metadata", "mesh_devices", None, ["N300"]),
        ("metadata", "requires.vllm", ">=0.25", ">=0.26"),
        ("metadata", "version", "1.0", "1.1"),
        ("capabilities", "max_device_top_k", 32, None),
        ("capabilities", "supports_prefix_caching", True, False),
        ("signatures", "decode_forward", "(tokens, start_pos)", "(tokens, **kwargs)"),
        ("files", "adapter.py", found[7][2], found[7][3]),
    ]
    assert [name for _, name, _, _ in found[8:]] == ["gone.py", "new.py", "vllm_metadata.json"]
    assert found[8][2:] == ("0 bytes, sha256 e3b0c44298fc", None)
    assert found[9][2:] == (None, "1 byte, sha256 2d711642b726")


def test_equal_bundles(pair):
    assert changes(pair[0], pair[0]) == []


def test_capabilities_that_the_source_does_not_tell(pair):
    first, _ = pair
    (first / "adapter.py").write_text("class Model:\n    model_capabilities = make()\n")
    found = difference(inspect(pair[1]), inspect(first), names=("A", "B"))
    assert ("capabilities", "model_capabilities", "<unknown>") in [(one.section, one.name, one.after) for one in found]


def test_several_bundles(pair, tmp_path):
    for name in ("a", "b"):
        place = tmp_path / "package" / "vllm_models" / name / "vllm_metadata.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"arch": "Foo", "main_class": "m:C"}))
    with pytest.raises(SeveralBundles) as raised:
        changes(tmp_path / "package", pair[0])
    assert str(raised.value) == "A holds 2 bundles: a, b. Name the folder of one of them."
