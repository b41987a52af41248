import json

import pytest
from hub_cases import ADAPTER, METADATA, V3, V4, V5, V6

from vllm_tt.bundle import discover, lock
from vllm_tt.bundle.hub import errors
from vllm_tt.bundle.hub.origin import Origin, read_origin
from vllm_tt.bundle.hub.pull import InstalledFromElsewhere, InstalledOther, Modified, Rejected
from vllm_tt.bundle.install import DestinationExists

ROOT = {"vllm_metadata.json": METADATA, "adapter.py": ADAPTER}


def locked(files):
    """The files, with a lock of them."""
    entries = [
        lock.LockedFile(path=path, size=len(text), sha256=__import__("hashlib").sha256(text.encode()).hexdigest())
        for path, text in files.items()
    ]
    return {**files, lock.LOCK_NAME: lock.lock_of(None, entries).to_bytes()}


@pytest.mark.parametrize(
    ("files", "main_class", "paths"),
    [
        (V3, "adapter:Adapter", {"adapter.py", "tt/model.py"}),
        (V4, "models.demos.x.generator_vllm:Adapter", set()),
        (V5, "models.x.generator_vllm:Adapter", {"models/__init__.py", "models/x/generator_vllm.py"}),
        (V6, "adapter:Adapter", {"adapter.py", "tt/model.py"}),
        (ROOT, "adapter:Adapter", {"adapter.py"}),
    ],
    ids=["v3", "v4", "v5", "v6", "root"],
)
def test_every_layout_is_registered_by_the_reader(hub, pull, tree, tmp_path, files, main_class, paths):
    hub.add("org/name", files)
    plan = pull("org/name")
    folder = tmp_path / "into" / "org__name"
    assert [item.destination for item in plan.items] == [folder]
    assert tree(folder).keys() == {"vllm_metadata.json", *paths}
    found = discover(str(tmp_path / "into"), ignore_requires=True)
    assert [bundle.metadata.main_class for bundle in found.bundles] == [main_class]
    assert (found.skipped, [path.name for path in (tmp_path / "into").iterdir()]) == ((), ["org__name"])
    assert read_origin(folder) == Origin(
        repo="org/name", commit=plan.snapshot.commit, revision="main", bundle=plan.items[0].source.name
    )


def test_scripts_and_wheels_are_neither_fetched_nor_run(hub, pull):
    hub.add("org/name", V5)
    plan = pull("org/name")
    assert [found.text for found in plan.findings] == [
        "the repository has 'run.sh' and 'install.sh', which tt-bundle never runs"
    ]
    assert hub.asked(r"\.sh|wheels") == []


def test_several_bundles_are_installed_side_by_side(hub, pull, tree, tmp_path):
    hub.add("org/name", {**V5, "vllm_models/y/vllm_metadata.json": METADATA, "vllm_models/y/adapter.py": ADAPTER})
    assert [item.destination.name for item in pull("org/name", only=("y",)).items] == ["org__name__y"]
    assert [item.current for item in pull("org/name").items] == [False, True]
    assert set(tree(tmp_path / "into" / "org__name__y")) == {
        "vllm_metadata.json", "adapter.py", "models/__init__.py", "models/x/generator_vllm.py",
    }  # fmt: skip


def test_the_lock_is_verified(hub, pull, tree, tmp_path):
    hub.add("org/name", locked(ROOT))
    plan = pull("org/name")
    assert plan.items[0].findings == ()
    assert lock.verify(tmp_path / "into" / "org__name", require_lock=True) == ()


def test_the_readme_of_a_repository_belongs_to_its_bundle_only_when_locked(hub, pull, tree, tmp_path):
    hub.add("org/one", {**locked(ROOT), "README.md": "# card\n"})
    hub.add("org/two", locked({**ROOT, "README.md": "# own\n"}))
    pull("org/one")
    pull("org/two")
    assert "README.md" not in tree(tmp_path / "into" / "org__one")
    assert "README.md" in tree(tmp_path / "into" / "org__two")
    assert all(item.current for name in ("one", "two") for item in pull(f"org/{name}").items)


REJECTED = {
    "injected": ({**locked(ROOT), "torch.py": ""}, "'torch.py' is not in bundle.lock.json"),
    "changed": ({**locked(ROOT), "adapter.py": "x"}, "'adapter.py' differs from bundle.lock.json"),
    "missing": (locked({**ROOT, "gone.py": ""}), None),
    "injected-v3": ({**V3, "vllm_bundle/torch.py": ""}, "'torch.py' is not in tt_kernel_manifest.json"),
    "changed-v3": ({**V3, "vllm_bundle/adapter.py": "x"}, "'adapter.py' differs from tt_kernel_manifest.json"),
    "missing-v3": (
        {path: text for path, text in V3.items() if path != "vllm_bundle/tt/model.py"},
        "'vllm_bundle/tt/model.py' is missing; tt_kernel_manifest.json lists it",
    ),
    "not-registrable": (
        {**ROOT, "vllm_metadata.json": '{"arch": "A", "main_class": "nocolon"}'},
        "vllm_metadata.json:1:15: 'main_class' must look like 'module:Class', got 'nocolon'",
    ),
    "a-list": ({**ROOT, "vllm_metadata.json": "[]"}, "must be a JSON object, got a list"),
}


@pytest.mark.parametrize(("files", "fault"), REJECTED.values(), ids=REJECTED)
def test_nothing_is_installed_of_a_bundle_that_is_not_right(hub, pull, tmp_path, files, fault):
    if fault is None:
        files = {path: data for path, data in files.items() if path != "gone.py"}
        fault = "'gone.py' is missing; bundle.lock.json lists it"
    hub.add("org/name", files)
    with pytest.raises(Rejected) as error:
        pull("org/name")
    assert str(error.value) == f"org/name was not installed: {fault}"
    assert not (tmp_path / "into").exists()


def test_metadata_that_another_tool_wrote_anew_is_accepted(hub, pull):
    hub.add("org/name", {**locked(ROOT), "vllm_metadata.json": METADATA.replace(" ", "")})
    (item,) = pull("org/name").items
    assert [found.text for found in item.findings] == ["'vllm_metadata.json' differs from bundle.lock.json"]


def test_a_branch_that_moves_meanwhile_does_not_mix_commits(hub, pull, tree, tmp_path):
    repo = hub.add("org/name", ROOT)
    first = repo.branches["main"]
    hub.hooks["HEAD .*"] = lambda: repo.commit({"vllm_metadata.json": METADATA.encode(), "adapter.py": b"late"})
    assert pull("org/name").snapshot.commit == first
    assert tree(tmp_path / "into" / "org__name")["adapter.py"] == ADAPTER.encode()


def test_what_is_taken(hub, pull, tmp_path):
    repo = hub.add("org/name", ROOT)
    first = pull("org/name").snapshot.commit
    second = repo.commit({**repo.head(), "adapter.py": b"new"})
    with pytest.raises(InstalledOther) as error:
        pull("org/name")
    assert str(error.value) == (
        f"'org__name' is installed at commit {first[:12]}; 'main' is {second[:12]}; use --force to replace it"
    )
    pull("org/name", force=True)
    folder = tmp_path / "into" / "org__name"
    assert read_origin(folder).commit == second
    (folder / "adapter.py").write_text("mine")
    with pytest.raises(Modified) as error:
        pull("org/name")
    assert str(error.value) == (
        f"'org__name' is installed at commit {second[:12]} and was changed since; use --force to replace it"
    )
    assert error.value.exit_code == 4


@pytest.mark.parametrize("make", [lambda place: place.mkdir(), lambda place: place.write_text("")])
def test_a_place_that_something_else_has(hub, pull, tmp_path, make):
    hub.add("org/name", ROOT)
    (tmp_path / "into").mkdir()
    make(tmp_path / "into" / "org__name")
    with pytest.raises(DestinationExists) as error:
        pull("org/name")
    assert str(error.value) == "'org__name' exists; use --force to replace it"
    assert hub.asked("adapter.py") == []
    pull("org/name", force=True)


@pytest.mark.parametrize("force", [False, True])
def test_two_repositories_for_one_folder(hub, pull, tmp_path, force):
    hub.add("a__b/c", ROOT)
    hub.add("a/b__c", ROOT)
    pull("a__b/c")
    with pytest.raises(InstalledFromElsewhere) as error:
        pull("a/b__c", force=force)
    assert str(error.value) == (
        "'a__b__c' is already installed from 'a__b/c'. Remove it first, or name another folder with --into."
    )


def test_a_dry_run_installs_nothing(hub, pull, tmp_path):
    hub.add("org/name", V3)
    plan = pull("org/name", dry_run=True)
    assert plan.items[0].size == sum(len(text) for path, text in V3.items() if path.startswith("vllm_bundle/"))
    assert not (tmp_path / "into").exists()
    assert hub.asked("/vllm_bundle/") == []


def test_what_is_complete_is_kept_for_the_next_try(hub, pull, tmp_path):
    hub.add("org/name", {**ROOT, "model.py": "x" * 100})
    hub.faults["GET /org/name/resolve/.*/adapter.py"] = {"code": 503, "times": 3}
    with pytest.raises(errors.ServerFault):
        pull("org/name")
    assert not (tmp_path / "into").exists()
    assert pull("org/name").items[0].findings[0].code == "TB911"
    assert len(hub.asked("GET .*/model.py")) == 1
    assert list((tmp_path / "cache" / "hub" / "org__name").iterdir()) == []


def test_nothing_stale_is_taken_when_the_hub_is_away(hub, pull, tmp_path, tree):
    repo = hub.add("org/name", ROOT)
    pull("org/name")
    before = tree(tmp_path / "into" / "org__name")
    repo.commit({**repo.head(), "adapter.py": b"new"})
    hub.faults[".* /api/.*"] = {"code": 500, "times": 99}
    with pytest.raises(errors.ServerFault):
        pull("org/name", force=True)
    hub.faults.clear()
    hub.faults["HEAD .*"] = {"code": 404, "headers": {"X-Error-Code": "RepoNotFound"}, "times": 99}
    with pytest.raises(errors.NotFound):
        pull("org/name", force=True)
    assert tree(tmp_path / "into" / "org__name") == before


def test_a_body_that_breaks_off_is_resumed(hub, pull, tmp_path, tree):
    hub.add("org/name", {**ROOT, "data.txt": "0123456789" * 1000})
    hub.faults["GET .*/data.txt"] = {"truncate": 4000}
    pull("org/name")
    assert tree(tmp_path / "into" / "org__name")["data.txt"] == b"0123456789" * 1000
    assert len(hub.asked("GET .*/data.txt")) == 2


@pytest.mark.parametrize(
    ("data", "cause"), [(b"x" * len(ADAPTER), "its contents are not those of the commit"), (b"x", "it broke off")]
)
def test_a_file_that_is_not_the_one_of_the_commit(hub, pull, tmp_path, data, cause):
    hub.add("org/name", ROOT)
    hub.tamper("org/name", "adapter.py", data)
    with pytest.raises(errors.Damaged) as error:
        pull("org/name")
    assert str(error.value) == (
        f"'adapter.py' of org/name arrived damaged: {cause}. Nothing was installed; the same command fetches it again."
    )
    hub.faults.clear()
    pull("org/name")


def test_large_files(hub, pull, tmp_path, tree):
    large = bytes(range(256)) * 8192
    hub.add("org/name", {**ROOT, "tokens.bin": large})
    assert pull("org/name").items[0].size > len(large)
    assert tree(tmp_path / "into" / "org__name")["tokens.bin"] == large


def test_a_gated_repository(hub, pull, client_for):
    hub.add("org/name", ROOT, gated=True)
    with pytest.raises(errors.Gated) as error:
        pull("org/name")
    assert str(error.value) == (
        f"org/name is gated: ask for access at {hub.url}/org/name, then use a token of the account that got it "
        "(HF_TOKEN)."
    )
    pull("org/name", using=client_for("hf_granted"))


def test_requirements_that_are_not_met_here_are_said(hub, pull):
    needy = json.dumps({**json.loads(METADATA), "requires": {"python": ">=99"}})
    hub.add("org/name", {**ROOT, "vllm_metadata.json": needy})
    (item,) = pull("org/name").items
    assert [found.code for found in item.findings] == ["TB911", "TB702"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"repo": 3}', '{"repo": "a", "commit": 1, "revision": null}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / ".tt-bundle-origin.json").write_text(text)
    assert read_origin(tmp_path) is None
