import platform
from importlib.metadata import version

import pytest

from vllm_tt import __version__
from vllm_tt.bundle.metadata import Requires
from vllm_tt.bundle.requires import Installed, check_requires


def messages(**requires):
    return [(found.code, found.message) for found in check_requires(Requires(**requires), Installed())]


@pytest.mark.parametrize(
    "requires",
    [
        {},
        {"python": f"=={platform.python_version()}"},
        {"vllm": f"=={version('vllm').partition('+')[0]}", "ttnn": ">=0.1", "vllm_tt": f"<={__version__}"},
        {"packages": ("click", "numpy>=1", "nothing-of-the-kind; python_version < '3'")},
    ],
)
def test_what_is_met_is_silent(requires):
    assert messages(**requires) == []


@pytest.mark.parametrize(
    ("requires", "found"),
    [
        ({"vllm_tt": ">=9999"}, ("TB702", f"needs vllm-tt>=9999, found {__version__}")),
        ({"vllm": "<0.1"}, ("TB702", f"needs vllm<0.1, found {version('vllm')}")),
        ({"vllm": ">>0.9"}, ("TB701", "requires.vllm: invalid specifier '>>0.9'")),
        ({"packages": ("click>=9999",)}, ("TB702", f"needs click>=9999, found {version('click')}")),
        (
            {"packages": ("nothing-of-the-kind",)},
            ("TB704", "needs the package 'nothing-of-the-kind', which is not installed"),
        ),
        ({"packages": ("a b c",)}, ("TB701", "requires.packages: invalid requirement 'a b c'")),
    ],
)
def test_what_is_not(requires, found):
    assert messages(**requires) == [found]


def test_a_package_without_a_known_version_is_no_reason_to_refuse(tmp_path, monkeypatch):
    folder = tmp_path / "sourcebuild-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sourcebuild\nVersion: of-today\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert messages(packages=("sourcebuild>=2",)) == [
        ("TB703", "needs sourcebuild>=2, whose version is not known here")
    ]
