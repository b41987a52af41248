import json
import sys

import pytest

from vllm_tt.models.loader import ClassMissing, ImportFailed, ModuleMissing, NotAClass, load_class


def load(bundle):
    return load_class(bundle.metadata.main_class, bundle.folder, f"bundle {bundle.name}")


def error(bundle, kind):
    with pytest.raises(kind) as caught:
        load(bundle)
    return str(caught.value)


def test_the_class_comes_from_the_bundles_own_file(bundle):
    found = load(bundle("mine", adapter="class Model: where = __file__"))
    assert found.where.endswith("/mine/adapter.py")
    assert found.__module__.startswith("vllm_tt_bundles.mine_")


def test_two_bundles_with_one_file_name_each_get_their_own(bundle):
    first = bundle("first", adapter="from common import NAME\nclass Model: name = NAME", files={"common.py": "NAME=1"})
    second = bundle(
        "second", adapter="from common import NAME\nclass Model: name = NAME", files={"common.py": "NAME=2"}
    )
    assert [load(first).name, load(second).name, load(first).name] == [1, 2, 1]


def test_two_folders_of_one_name_are_two_bundles(bundle):
    first = bundle("a/same", adapter="class Model: which = 1")
    second = bundle("b/same", adapter="class Model: which = 2")
    assert [load(first).which, load(second).which] == [1, 2]


def test_loading_twice_is_loading_once(bundle):
    mine = bundle("mine", adapter="class Model: pass")
    assert load(mine) is load(mine)
    assert sys.path.count(str(mine.folder)) == 1


@pytest.mark.parametrize("name", ["json", "torch", "vllm", "types"])
def test_a_module_named_like_an_installed_one(bundle, name):
    mine = bundle("shadow", main_class=f"{name}:Model", files={f"{name}.py": "class Model: mine = True"})
    before = sys.modules.get(name)
    assert load(mine).mine
    assert sys.modules.get(name) is before
    assert json.loads("1") == 1
    assert sys.path[-1] == str(mine.folder)


def test_installed_modules_win_over_a_bundles_helpers(bundle):
    mine = bundle(
        "mine",
        adapter="import colorsys\nclass Model: helper = colorsys.__file__",
        files={"colorsys.py": "raise SystemExit"},
    )
    assert "mine" not in load(mine).helper


def test_packages_and_relative_imports(bundle):
    mine = bundle(
        "mine",
        main_class="tt.generator.vllm:Model",
        files={
            "tt/__init__.py": "",
            "tt/generator/vllm.py": "from .. import shared\nfrom .layers import B\nclass Model: got = shared.A, B",
            "tt/generator/layers.py": "B = 7",
            "tt/shared.py": "A = 1",
        },
    )
    assert load(mine).got == (1, 7)


def test_relative_imports_between_files_of_the_folder(bundle):
    mine = bundle(
        "mine", adapter="from .base import Base\nclass Model(Base): pass", files={"base.py": "class Base: x = 1"}
    )
    assert load(mine).x == 1


def test_a_class_that_the_adapter_imports(bundle):
    mine = bundle("mine", adapter="from .base import Model", files={"base.py": "class Model: x = 1"})
    assert load(mine).x == 1


def test_a_module_that_is_not_in_the_bundle_is_imported_as_any_other(bundle, tmp_path, monkeypatch):
    (tmp_path / "metal/models/demos").mkdir(parents=True)
    (tmp_path / "metal/models/demos/gen.py").write_text("class Model: metal = True")
    monkeypatch.syspath_prepend(tmp_path / "metal")
    mine = bundle("mine", main_class="models.demos.gen:Model", files={"models/other.py": ""})
    assert load(mine).metal
    assert load(mine).__module__ == "models.demos.gen"


def test_nothing_but_the_chosen_bundle_is_imported(bundle):
    bundle("other", adapter="raise RuntimeError")
    assert load(bundle("mine", adapter="class Model: pass"))


def test_a_missing_module_of_the_bundle(bundle):
    mine = bundle("mine", main_class="tt.gen:Model", adapter="")
    assert error(mine, ModuleMissing) == (
        "bundle mine: there is no module 'tt.gen' for main_class 'tt.gen:Model' (looked for tt/gen.py and "
        f"tt/gen/__init__.py in {mine.folder}, then an installed module or one on PYTHONPATH). "
        "Check the name, and install the package that provides it."
    )


@pytest.mark.parametrize(
    ("home", "remedy"),
    [
        (None, "It is part of tt-metal: set TT_METAL_HOME to a tt-metal checkout and put that on PYTHONPATH."),
        ("empty", "It is part of tt-metal, and the checkout in TT_METAL_HOME={home} does not have it."),
        ("full", "It is part of tt-metal: put the checkout on PYTHONPATH (PYTHONPATH={home})."),
    ],
)
def test_a_missing_module_of_tt_metal(tmp_path, monkeypatch, home, remedy):
    (tmp_path / "full/models/demos").mkdir(parents=True)
    (tmp_path / "full/models/demos/gen.py").touch()
    monkeypatch.delenv("TT_METAL_HOME", raising=False)
    if home:
        monkeypatch.setenv("TT_METAL_HOME", str(tmp_path / home))
    with pytest.raises(ModuleMissing) as caught:
        load_class("models.demos.gen:Model", None, "built-in model TTLlama")
    assert str(caught.value) == (
        "built-in model TTLlama: there is no module 'models.demos.gen' for main_class 'models.demos.gen:Model' "
        f"(looked for an installed module or one on PYTHONPATH). {remedy.format(home=tmp_path / str(home))}"
    )


@pytest.mark.parametrize(
    ("adapter", "nearest"),
    [
        ("class Modell: pass", "Did you mean Modell?"),
        ("class Zebra: pass", "Its classes: Zebra."),
        ("from json import JSONDecoder", "It defines no class."),
    ],
)
def test_a_missing_class(bundle, adapter, nearest):
    mine = bundle("mine", adapter=adapter)
    assert error(mine, ClassMissing) == (
        f"bundle mine: {mine.folder}/adapter.py has no class 'Model' for main_class 'adapter:Model'. {nearest}"
    )


@pytest.mark.parametrize(("adapter", "what"), [("def Model(): pass", "a function"), ("Model = 1", "a int")])
def test_not_a_class(bundle, adapter, what):
    assert error(bundle("mine", adapter=adapter), NotAClass) == (
        f"bundle mine: main_class 'adapter:Model' is {what}, not a class. Name the adapter class itself."
    )


@pytest.mark.parametrize(
    ("adapter", "place", "cause"),
    [
        (
            "x = 1\nimport not_installed_anywhere\n",
            "adapter.py:2 (import not_installed_anywhere)",
            "ModuleNotFoundError: No module named 'not_installed_anywhere'",
        ),
        ("from .helper import f\nf()\n", "helper.py:2 (return 1 / 0)", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "adapter.py:2 (sys.exit(3))", "SystemExit: 3"),
        ("from .nothing import x", "adapter.py:1 (from .nothing import x)", None),
        ("def (:\n", "adapter.py:1", "SyntaxError: invalid syntax (adapter.py, line 1)"),
        ("import json\njson.loads('{')", "adapter.py:2 (json.loads('{'))", None),
    ],
)
def test_an_import_that_fails_names_the_bundles_own_line(bundle, adapter, place, cause):
    mine = bundle("mine", adapter=adapter, files={"helper.py": "def f():\n    return 1 / 0\n"})
    start, _, rest = error(mine, ImportFailed).partition(" failed at ")
    assert start == "bundle mine: importing 'adapter' for main_class 'adapter:Model'"
    found_place, _, found_cause = rest.partition(": ")
    assert found_place == f"{mine.folder}/{place}"
    assert cause is None or found_cause == cause


def test_an_interrupt_is_no_failed_import(bundle):
    with pytest.raises(KeyboardInterrupt):
        load(bundle("mine", adapter="raise KeyboardInterrupt"))
