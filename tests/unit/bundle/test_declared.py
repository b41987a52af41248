import pytest

from vllm_tt.bundle.declared import UnknownFromSource, declared_capabilities

ON = {"supports_async_decode": True}


def declared(folder, adapter, **files):
    for name, text in {"adapter": adapter, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return declared_capabilities("adapter", "Model", str(folder))


@pytest.mark.parametrize(
    "adapter",
    [
        f"class Model: model_capabilities = {ON}",
        f"class Model: model_capabilities: dict[str, bool] = {ON}",
        f"from torch import nn\nclass Model(nn.Module):\n    model_capabilities = {ON}",
        f"import ttnn_is_missing\nclass Model:\n    model_capabilities = {ON}",
        f"class Base: model_capabilities = {ON}\nclass Model(Base): pass",
        f"class Base: model_capabilities = {{}}\nclass Model(Base): model_capabilities = {ON}",
        "from .base import Base\nclass Model(Base): pass",
        "from base import Base as Parent\nclass Model(Parent): pass",
        "from .base import Base as Model",
    ],
)
def test_literals_are_read_without_importing(tmp_path, adapter):
    assert declared(tmp_path, adapter, base=f"import no_such\nclass Base: model_capabilities = {ON}") == ON


@pytest.mark.parametrize("adapter", ["class Model: pass", "import abc\nclass Model(abc.ABC): pass"])
def test_nothing_declared(tmp_path, adapter):
    assert declared(tmp_path, adapter) is None


def test_a_wrong_type_is_for_the_caller_to_judge(tmp_path):
    assert declared(tmp_path, "class Model: model_capabilities = ['supports_async_decode']") == [
        "supports_async_decode"
    ]


@pytest.mark.parametrize(
    "adapter",
    [
        "FLAGS = {}\nclass Model: model_capabilities = FLAGS",
        "class Model: model_capabilities = dict(supports_async_decode=True)",
        "class Model:\n    if True:\n        model_capabilities = {}",
        "class Model:\n    model_capabilities = {}\n    model_capabilities['x'] = True",
        "class Model:\n    model_capabilities = {}\n    model_capabilities.update(x=1)",
        "class Model:\n    model_capabilities: dict",
        "class Model: model_capabilities = {}\nModel.model_capabilities = {'x': 1}",
        "class Model: model_capabilities = {}\nModel.model_capabilities['x'] = 1",
        "class Model:\n    def __init__(self):\n        self.model_capabilities = {}",
        "class Model(metaclass=Meta): pass",
        "@decorate\nclass Model: pass",
        "from models.tt_transformers.tt.generator_vllm import LlamaForCausalLM\nclass Model(LlamaForCausalLM): pass",
        "class Model(make_base()): pass",
        "Model = make()",
        "class Model(:",
    ],
)
def test_what_the_text_does_not_settle(tmp_path, adapter):
    with pytest.raises(UnknownFromSource):
        declared(tmp_path, adapter)
