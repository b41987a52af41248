from vllm_tt.bundle.code import reachable


def write(folder, **files):
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(folder, module):
    return [text.name for text in reachable(folder, module)]


def test_only_what_the_main_module_imports(tmp_path):
    write(tmp_path, adapter="import a\nfrom p import b\n", a="", p__b="from . import c\n", p__c="import os\n", other="")
    (tmp_path / "p/__init__.py").write_text("from .d import D\n")
    write(tmp_path, p__d="D = 1\n")
    assert sorted(names(tmp_path, "adapter")) == ["a", "adapter", "p", "p.b", "p.c", "p.d"]


def test_packages_above_the_module_are_its_own(tmp_path):
    write(tmp_path, tt__generator__vllm="from ..rope import turn\n", tt__rope="")
    (tmp_path / "tt/__init__.py").write_text("")
    assert sorted(names(tmp_path, "tt.generator.vllm")) == ["tt", "tt.generator.vllm", "tt.rope"]


def test_circles_end(tmp_path):
    write(tmp_path, a="import b\n", b="import a\n")
    assert names(tmp_path, "a") == ["a", "b"]


def test_what_is_not_there_or_not_python(tmp_path):
    assert reachable(tmp_path, "adapter") == []
    write(tmp_path, adapter="def (:\n", nul="a = '\0'\n", deep="x = " + "(" * 3000 + ")" * 3000)
    faults = {module: reachable(tmp_path, module)[0].fault for module in ("adapter", "nul", "deep")}
    assert (faults["adapter"].message, faults["adapter"].line) == ("invalid syntax", 1)
    assert "null bytes" in faults["nul"].message
    assert "too many nested parentheses" in faults["deep"].message or "nested too deeply" in faults["deep"].message
