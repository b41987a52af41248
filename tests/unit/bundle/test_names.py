import pytest

from vllm_tt.bundle.names import architectures, main_class, plain_name, registered_name


@pytest.mark.parametrize(("arch", "name"), [("LlamaForCausalLM", "TTLlamaForCausalLM"), ("TTLlama", "TTLlama")])
def test_names_are_prefixed_once(arch, name):
    assert registered_name(arch) == name
    assert plain_name(name) == arch.removeprefix("TT")


def test_arch_comes_first_and_each_name_once():
    root = {"arch": "B", "architectures": ["A", "TTA", "B", "TTB", "C"]}
    assert architectures(root, []) == ("B", "A", "C")


@pytest.mark.parametrize(
    "text", ["adapter:Model", "a.b.c:Model", "_private:_Model", "models.demos.qwen38_27b_qb2.tt.vllm:Qwen3_5"]
)
def test_good_classes_pass(text):
    findings = []
    assert main_class({"main_class": text}, findings) == text
    assert findings == []


@pytest.mark.parametrize(
    "text",
    [
        "Model",
        ":",
        "a:",
        ":B",
        "a:b:c",
        " a:B",
        "a:B ",
        "a.:B",
        "a..b:C",
        "a/b:C",
        "a\\b:C",
        "a:B.C",
        "a:B-C",
        "a:B\n",
        "é:B",
        "a:1",
        "class:B",
        "a:class",
    ],
)
def test_bad_classes_do_not(text):
    findings = []
    assert main_class({"main_class": text}, findings) is None
    assert len(findings) == 1
