import ast
import sys

import pytest

from vllm_tt.bundle.source import ClassSource, Outside, SourceTree, find_module


@pytest.fixture
def files(tmp_path):
    def make(**texts):
        for name, text in texts.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [str(tmp_path)]

    return make


def lineage(search, module="m", name="C", **options):
    tree = SourceTree(search, **{"outside": frozenset({"torch"}), **options})
    return [
        f"{found.module}.{found.node.name}" if isinstance(found, ClassSource) else f"<{found.name}>"
        for found in tree.lineage(module, name)
    ]


def test_modules_are_found_without_importing_their_packages(files, tmp_path):
    search = files(pkg__inner__mod="", namespace__mod="")
    (tmp_path / "pkg/__init__.py").write_text("raise SystemExit")
    before = set(sys.modules)
    assert find_module("pkg.inner.mod", search) == tmp_path / "pkg/inner/mod.py"
    assert find_module("pkg", search) == tmp_path / "pkg/__init__.py"
    assert find_module("namespace.mod", search) == tmp_path / "namespace/mod.py"
    assert find_module("namespace", search) is None
    assert find_module("pkg.inner.other", search) is None
    assert set(sys.modules) == before


def test_modules_on_the_path(files, monkeypatch):
    monkeypatch.syspath_prepend(files(only_here="")[0])
    assert find_module("only_here", None).name == "only_here.py"
    assert find_module("sys", None) is None


@pytest.mark.parametrize(
    ("text", "bases"),
    [
        ("class C: pass", []),
        ("class C(object): pass", ["<builtins.object>"]),
        ("class B: pass\nclass C(B): pass", ["m.B"]),
        ("from other import A\nclass C(A): pass", ["other.A"]),
        ("from other import A as B\nclass C(B): pass", ["other.A"]),
        ("from .other import A\nclass C(A): pass", ["other.A"]),
        ("from . import other\nclass C(other.A): pass", ["other.A"]),
        ("import other\nclass C(other.A): pass", ["other.A"]),
        ("import other as o\nclass C(o.A): pass", ["other.A"]),
        ("import pkg.deep\nclass C(pkg.deep.D): pass", ["pkg.deep.D", "other.A"]),
        ("from pkg import deep\nclass C(deep.D): pass", ["pkg.deep.D", "other.A"]),
        ("from other import *\nclass C(A): pass", ["other.A"]),
        ("if x:\n    from other import A\nclass C(A): pass", ["other.A"]),
        ("from torch import nn\nclass C(nn.Module): pass", ["<torch.nn.Module>"]),
        ("import torch.nn as nn\nclass C(nn.Module): pass", ["<torch.nn.Module>"]),
        ("import abc\nclass C(abc.ABC): pass", ["<abc.ABC>"]),
        ("from typing import Generic\nclass C(Generic[T]): pass", ["<typing.Generic>"]),
        ("from elsewhere import A\nclass C(A): pass", ["<elsewhere.A>"]),
        ("class C(A): pass", ["<>"]),
        ("class C(make()): pass", ["<>"]),
        ("A = 1\nclass C(A): pass", ["<>"]),
        ("def A(): pass\nclass C(A): pass", ["<>"]),
        ("try:\n    from other import A\nexcept ImportError:\n    A = object\nclass C(A): pass", ["<>"]),
        ("from other import A\nclass B(A): pass\nclass C(B, A): pass", ["m.B", "other.A"]),
    ],
)
def test_bases(files, text, bases):
    search = files(m=text, other="class A: pass", pkg____init__="", pkg__deep="from other import A\nclass D(A): pass")
    assert lineage(search) == ["m.C", *bases]


def test_circles_end(files):
    search = files(m="from other import A\nclass C(A): pass", other="from m import C\nclass A(C): pass")
    assert lineage(search) == ["m.C", "other.A"]
    assert lineage(files(m="from n import C", n="from m import C")) == ["<>"]


@pytest.mark.parametrize("text", ["class C(:", "\0", "x = " + "(" * 300 + ")" * 300], ids=["syntax", "nul", "nested"])
def test_text_that_does_not_parse_is_not_in_the_tree(files, text):
    assert lineage(files(m=text)) in (["<m.C>"], ["<>"])


def test_installed_modules_come_first_where_they_would_at_run_time(files):
    search = files(m="from click import Group\nclass C(Group): pass", click="class Group: pass")
    assert lineage(search) == ["m.C", "click.Group"]
    assert lineage(search, installed_first=True) == ["m.C", "<click.Group>"]


def test_the_folder_itself_may_be_on_the_path(files, monkeypatch):
    search = files(m="from other import A\nclass C(A): pass", other="class A: pass")
    monkeypatch.syspath_prepend(search[0])
    assert lineage(search, installed_first=True) == ["m.C", "other.A"]


def test_edited_files_are_read_again(files, tmp_path):
    search = files(m="class C: pass")
    assert lineage(search) == ["m.C"]
    (tmp_path / "m.py").write_text("class D: pass")
    assert lineage(search) == ["<>"]


def test_a_class_is_found_as_its_definition(files):
    found = SourceTree(files(m="class C: x = 1"), outside=frozenset()).find("m", "C")
    assert isinstance(found.node, ast.ClassDef)
    assert SourceTree(files(m=""), outside=frozenset()).find("m", "C") == Outside()
