import dataclasses
import importlib.util
import json

import pytest
from bundle_cases import ROOT

from vllm_tt.bundle.adapter_source import class_facts
from vllm_tt.bundle.facts import UNKNOWN, AdapterFacts, Place
from vllm_tt.models.probe import facts_of_class

ADAPTERS = ["valid/two-keys", "valid/every-method", "valid/static-methods", "valid/decode-contract",
            "invalid/coroutine", "invalid/generator", "invalid/property", "invalid/by-position-only",
            "invalid/mesh-by-keyword-only", "invalid/capabilities-list", "invalid/capability-text"]  # fmt: skip


def plain(facts):
    """Without places and bodies, and without the methods that the contract does not ask for."""
    methods = {
        name: dataclasses.replace(one, body=None, place=Place())
        for name, one in facts.methods.items()
        if one.kind != "value"
    }
    return dataclasses.replace(
        facts, methods=methods, place=Place(), capabilities_place=Place(), max_tokens=UNKNOWN, abstract=()
    )


@pytest.mark.parametrize("case", ADAPTERS)
def test_source_and_class_show_the_same(case):
    from_source = class_facts("adapter", "Model", ROOT / case)
    spec = importlib.util.spec_from_file_location("an_adapter", ROOT / case / "adapter.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert plain(facts_of_class(module.Model)) == plain(from_source)


@pytest.mark.parametrize("case", ADAPTERS)
def test_facts_survive_json(case):
    facts = class_facts("adapter", "Model", ROOT / case)
    raw = json.loads(json.dumps(facts.to_dict()))
    assert plain(AdapterFacts.from_dict(raw, Place())) == plain(facts)


def test_what_leads_to_no_class():
    assert class_facts("adapter", "Other", ROOT / "valid/two-keys") is None
    assert class_facts("nowhere", "Model", ROOT / "valid/two-keys") is None


@pytest.mark.parametrize(
    ("body", "elsewhere"),
    [
        ("class Model: pass", ()),
        ("class Model(object): pass", ()),
        ("from abc import ABC\nclass Model(ABC): pass", ()),
        ("from library import Base\nclass Model(Base): pass", ("library.Base",)),
        ("class Model(make()): pass", ("?",)),
        ("class Model(metaclass=Meta): pass", ("?",)),
        ("@register\nclass Model: pass", ("?",)),
        ("class Model:\n    def __getattr__(self, name): pass", ("?",)),
    ],
)
def test_bases_that_cannot_be_read(tmp_path, body, elsewhere):
    (tmp_path / "adapter.py").write_text(body)
    assert class_facts("adapter", "Model", tmp_path).bases_elsewhere == elsewhere


def test_a_method_assigned_after_the_fact_is_not_judged(tmp_path):
    text = "class Model:\n    def decode_forward(self): pass\n\nModel.decode_forward = traced(Model.decode_forward)\n"
    (tmp_path / "adapter.py").write_text(text)
    assert class_facts("adapter", "Model", tmp_path).methods["decode_forward"].kind == "value"
