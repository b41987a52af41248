import pytest
from hub_cases import V3, V4, V5, V6

from vllm_tt.bundle.hub.layouts import NoBundle, NoSuchBundle, UnsafePath, chosen, recognise
from vllm_tt.bundle.hub.manifest import Manifest

METADATA = "vllm_metadata.json"


def found_in(files):
    text = files.get("tt_kernel_manifest.json") if isinstance(files, dict) else None
    return recognise("org/name", files, Manifest.parse(text.encode()) if text else None)


@pytest.mark.parametrize(
    ("files", "layout", "paths"),
    [
        (V3, "vllm_bundle", {METADATA, "adapter.py", "tt/model.py"}),
        (V4, "manifest", set()),
        (V5, "vllm_models with metal/", {METADATA, "models/__init__.py", "models/x/generator_vllm.py"}),
        (V6, "vllm_models with code at the root", {METADATA, "adapter.py", "tt/model.py"}),
        ([METADATA, "adapter.py", ".cache/huggingface/x", ".git/config", "a.pyc"], "root", {METADATA, "adapter.py"}),
    ],
)
def test_layouts(files, layout, paths):
    contents = found_in(files)
    assert contents.layout == layout
    assert [source.files.keys() for source in contents.bundles] == [paths]
    assert not contents.several


def test_what_lies_around_a_bundle_at_the_root_is_optional():
    (source,) = found_in([METADATA, "README.md", ".gitattributes", "adapter.py"]).bundles
    assert source.optional == {"README.md", ".gitattributes"}


def test_scripts_are_named():
    assert found_in(V5).scripts == ("run.sh", "install.sh")


def test_several_bundles():
    files = [f"vllm_models/{name}/{METADATA}" for name in ("b", "a")] + ["metal/m.py"]
    contents = found_in(files)
    assert [source.name for source in contents.bundles] == ["a", "b"]
    assert contents.several
    assert [source.name for source in chosen("org/name", contents, ("b", "b"))] == ["b"]
    with pytest.raises(NoSuchBundle) as error:
        chosen("org/name", contents, ("c",))
    assert str(error.value) == "org/name has no bundle 'c'; it has a, b."


def test_no_bundle():
    with pytest.raises(NoBundle) as error:
        found_in(["README.md", "deep/er/vllm_metadata.json"])
    assert str(error.value) == (
        "no bundle found in org/name (looked for vllm_metadata.json at the root, in vllm_bundle/ and in vllm_models/*/)"
    )


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["vllm_bundle/../../x"], "'../../x' has an empty, '.' or '..' part"),
        (["vllm_bundle//etc/x"], "'/etc/x' is absolute"),
        (["vllm_bundle/a\\b"], "'a\\\\b' holds a backslash"),
        (["vllm_bundle/A.py", "vllm_bundle/a.py"], "'a.py' and 'A.py' are the same name on some systems"),
        (["vllm_bundle/a", "vllm_bundle/a/b"], "'a' is a file and a folder"),
    ],
)
def test_paths_that_must_not_be_written(paths, message):
    with pytest.raises(UnsafePath) as error:
        found_in([f"vllm_bundle/{METADATA}", *paths])
    assert str(error.value) == f"unsafe path in org/name: {message}. Nothing was installed."


def test_a_bundle_whose_name_is_no_folder():
    with pytest.raises(UnsafePath):
        found_in([f"vllm_models/../{METADATA}"])
