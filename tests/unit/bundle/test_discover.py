import os
import time
from pathlib import Path

import pytest
from bundle_cases import ROOT

from vllm_tt.bundle import discover
from vllm_tt.bundle.discover import folder_list


def names(discovery):
    return [bundle.folder.name for bundle in discovery.bundles]


def notices(discovery):
    return [(notice.finding.code, notice.finding.message) for notice in discovery.notices]


def reasons(discovery):
    return {skipped.folder.name: skipped.reason for skipped in discovery.skipped}


@pytest.mark.parametrize("value", [None, "", "  "])
def test_nothing_named_is_nothing_found(value):
    assert discover(value) == discover(None)
    assert discover(None).folders == ()


def test_bundles_come_in_the_order_of_their_names(add, tmp_path):
    for name in ("zeta", "alpha", "Mid"):
        add(name)
    found = discover(str(tmp_path))
    assert names(found) == ["Mid", "alpha", "zeta"]
    assert found.folders == (tmp_path,)
    assert (found.skipped, found.notices) == ((), ())


def test_other_folders_and_files_stay_silent(add, tmp_path):
    add("good")
    (tmp_path / "demos/llama").mkdir(parents=True)
    (tmp_path / "demos/vllm_metadata.txt").touch()
    (tmp_path / "README.md").touch()
    (tmp_path / "link-to-file").symlink_to("README.md")
    (tmp_path / ".#lock").symlink_to("nobody@nowhere")
    found = discover(str(tmp_path))
    assert (names(found), found.skipped, found.notices) == (["good"], (), ())


def test_every_bad_bundle_beside_a_good_one(add):
    found = discover(str(ROOT / "invalid"))
    assert "trailing-comma" in reasons(found)
    assert "duplicate-key" in names(found)
    assert len(found.bundles) + len(found.skipped) == len(list((ROOT / "invalid").iterdir()))


def test_odd_names_are_only_names(add, tmp_path):
    odd = ["a b", "a.b", "ünïcode", "semi;colon", "quote'", "new\nline", os.fsdecode(b"not-utf8-\xff")]
    for name in odd:
        add(name)
    assert sorted(names(discover(str(tmp_path)))) == sorted(odd)


def test_case_variants_of_the_file_name(add, tmp_path):
    add("bad", file="VLLM_Metadata.json")
    assert reasons(discover(str(tmp_path))) == {
        "bad": "found 'VLLM_Metadata.json'; the name must be exactly vllm_metadata.json"
    }


def test_hidden_folders_are_not_registered(add, tmp_path):
    folder = add(".tmp-install")
    add(".git", file="config")
    found = discover(str(tmp_path))
    assert names(found) == []
    assert notices(found) == [("TB006", f"ignoring hidden folder {folder}")]


def test_links_to_folders_work_and_count_once(add, tmp_path):
    add("elsewhere/real")
    (tmp_path / "bundles").mkdir()
    for name in ("first", "second"):
        (tmp_path / "bundles" / name).symlink_to(tmp_path / "elsewhere/real")
    found = discover(str(tmp_path / "bundles"))
    assert names(found) == ["first"]
    assert [code for code, _ in notices(found)] == ["TB008"]


def test_broken_and_circular_links(tmp_path):
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert reasons(discover(str(tmp_path))) == {
        "gone": "broken symbolic link -> 'nowhere'",
        "loop": "broken symbolic link -> 'loop'",
    }


def test_a_bundle_folder_without_permission(add, tmp_path, unprivileged):
    add("good")
    add("closed").chmod(0)
    with unprivileged():
        found = discover(str(tmp_path))
    (tmp_path / "closed").chmod(0o755)
    assert names(found) == ["good"]
    assert reasons(found) == {"closed": "cannot read folder: Permission denied"}


def test_the_folder_itself_without_permission(tmp_path, unprivileged):
    (tmp_path / "closed").mkdir(mode=0)
    with unprivileged():
        found = discover(str(tmp_path / "closed"))
    (tmp_path / "closed").chmod(0o755)
    assert notices(found) == [("TB002", f"EXTRA_MODELS_DIR: cannot read {tmp_path}/closed: Permission denied")]


@pytest.mark.parametrize("name", ["missing", "file"])
def test_not_a_folder(name, tmp_path):
    (tmp_path / "file").touch()
    found = discover(str(tmp_path / name))
    assert notices(found) == [("TB001", f"EXTRA_MODELS_DIR: {tmp_path}/{name} is not a directory")]
    assert found.folders == (tmp_path / name,)


def test_a_bundle_where_its_parent_is_wanted(add):
    folder = add("parent/bundle")
    message = (
        f"EXTRA_MODELS_DIR={folder} itself looks like a bundle; point it at the parent directory ('{folder.parent}')"
    )
    assert notices(discover(str(folder))) == [("TB003", message)]


def test_a_tt_model_package_where_its_bundles_are_wanted(add, tmp_path):
    add("vllm_models/llama")
    (tmp_path / "tt_kernel_manifest.json").write_text("{}")
    message = f"EXTRA_MODELS_DIR={tmp_path} is a tt-model package; use {tmp_path}/vllm_models"
    assert notices(discover(str(tmp_path))) == [("TB013", message)]
    assert names(discover(str(tmp_path / "vllm_models"))) == ["llama"]


def test_unmet_requirements_skip_unless_ignored(add, tmp_path):
    add("strict", requires={"vllm-tt": ">=9999"})
    found = discover(str(tmp_path))
    assert list(reasons(found)) == ["strict"]
    ignored = discover(str(tmp_path), ignore_requires=True)
    assert names(ignored) == ["strict"]
    (finding,) = ignored.bundles[0].findings
    assert finding.message.endswith("; registered nevertheless (TT_BUNDLE_IGNORE_REQUIRES is set)")


def test_a_list_of_folders(add, tmp_path):
    add("one/a")
    add("two/b")
    found = discover(f"{tmp_path}/one::{tmp_path}/two:{tmp_path}/one")
    assert names(found) == ["a", "b"]
    assert found.folders == (tmp_path / "one", tmp_path / "two")


def test_a_folder_whose_name_looks_like_a_list(add, tmp_path):
    add("one:two/a")
    assert names(discover(f"{tmp_path}/one:two")) == ["a"]


def test_folders_are_made_absolute_where_they_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert folder_list("a:../b:~/c:'/d e'") == (tmp_path / "a", tmp_path.parent / "b", Path("/home/me/c"), Path("/d e"))


def test_a_thousand_bundles_take_no_time(add, tmp_path):
    for number in range(1000):
        add(f"bundle{number}", requires={"vllm": ">=0.25", "packages": ["click"]})
    discover(str(tmp_path))
    best = min(timed(str(tmp_path)) for _ in range(5))
    assert best < 0.3


def timed(value):
    start = time.process_time()
    assert len(discover(value).bundles) == 1000
    return time.process_time() - start
