import json

import pytest
from hub_cases import LAUNCH, METADATA

from vllm_tt.bundle.findings import finding
from vllm_tt.bundle.hub import errors
from vllm_tt.bundle.hub import push as pushing
from vllm_tt.bundle.hub.client import ChangeRefused
from vllm_tt.bundle.hub.manifest import Manifest
from vllm_tt.bundle.hub.origin import read_origin
from vllm_tt.bundle.hub.push import Incomplete, NotPushed, OtherLayout

BUNDLE = {f"vllm_bundle/{name}" for name in ("vllm_metadata.json", "adapter.py", "tt/model.py", "bundle.lock.json")}


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, for large files
def test_a_round_trip_is_the_same_byte_for_byte(hub, push, pull, tree, folder, tmp_path):
    (folder / "README.md").write_text("# mine\n")
    (folder / "data.txt").write_bytes(bytes(range(256)) * 8192)
    done = push()
    plan = pull("org/name")
    pulled = tree(tmp_path / "into" / "org__name")
    assert pulled.pop("bundle.lock.json")
    assert pulled == tree(folder)
    assert (plan.snapshot.commit, plan.items[0].findings) == (done.commit, ())
    assert json.loads(hub.repos["org/name"].head()["vllm_bundle/bundle.lock.json"])["tree_sha256"] == done.tree_sha256


def test_what_a_new_repository_holds(hub, push):
    done = push()
    repo = hub.repos["org/name"]
    assert repo.head().keys() == {".gitattributes", "README.md", "tt_kernel_manifest.json", *BUNDLE}
    assert (repo.private, done.new, done.private) == (True, True, True)
    assert repo.messages[done.commit] == "Push mine"
    assert set(done.written) == {"README.md", "tt_kernel_manifest.json", *BUNDLE}


def test_public_is_asked_for(hub, push):
    assert push(public=True).private is False
    assert hub.repos["org/name"].private is False


def test_the_visibility_of_an_existing_repository_stays(hub, push):
    hub.add("org/name", {})
    hub.add("org/other", {}, private=True)
    assert push().private is False
    assert push("org/other", public=True).private is True


def test_no_change_is_no_commit(hub, push):
    first = push()
    again = push()
    assert (again.commit, again.written, again.removed) == (first.commit, (), ())
    assert len(hub.asked("POST .*/commit/")) == 1


def test_a_file_that_is_gone_is_removed(hub, push, folder):
    push()
    (folder / "tt" / "model.py").unlink()
    done = push(message="Drop it")
    assert done.removed == ("vllm_bundle/tt/model.py",)
    assert set(done.written) == {"vllm_bundle/bundle.lock.json"}
    assert hub.repos["org/name"].messages[done.commit] == "Drop it"


def test_what_else_the_repository_holds_stays(hub, push):
    hub.add(
        "org/name", {"LICENSE": "mine", "README.md": "---\nlicense: mit # mine\n---\n# Hi\n", "vllm_bundle/old": ""}
    )
    assert push().removed == ("vllm_bundle/old",)
    head = hub.repos["org/name"].head()
    assert head["LICENSE"] == b"mine"
    assert head["README.md"].decode() == (
        "---\nlicense: mit # mine\ntags:\n- tt-bundle\n- tt-model-cache\n- tenstorrent\n- vllm\n---\n# Hi\n"
    )


def test_a_readme_that_cannot_be_read_is_left_alone(hub, push):
    hub.add("org/name", {"README.md": "---\ntags: {\n---\n"})
    done = push()
    assert "README.md" not in done.written
    assert [found.text for found in done.findings] == [
        "README.md of the repository is left as it is: its tags cannot be read"
    ]


def test_the_bundles_own_readme_is_the_card_of_a_new_repository(hub, push, folder):
    (folder / "README.md").write_text("# mine\n")
    push()
    head = hub.repos["org/name"].head()
    assert head["README.md"].endswith(b"---\n# mine\n")
    assert head["vllm_bundle/README.md"] == b"# mine\n"


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (".env", "A=1", "'.env' looks like a secret"),
        ("notes.txt", "hf_" + "a" * 34, "notes.txt:1: looks like a Hugging Face token"),
        ("model.safetensors", "", "weights: 'model.safetensors' (0 bytes)"),
        ("vllm_metadata.json", "[]", "must be a JSON object, got a list"),
    ],
)
def test_what_must_not_be_published_is_not(hub, push, folder, name, text, fault):
    (folder / name).write_text(text)
    with pytest.raises(NotPushed) as error:
        push()
    assert str(error.value) == f"mine was not pushed: {fault}"
    assert "a" * 34 not in repr(error.value.findings)
    assert hub.requests == []


def test_errors_of_other_checks_refuse_it_too(hub, client, folder):
    request = pushing.Request(folder=folder, repo="org/name")
    with pytest.raises(NotPushed) as error:
        pushing.push(client, request, [finding("TB201", "bad"), finding("TB202", "worse")])
    assert str(error.value) == "mine was not pushed: bad (and 1 more)"
    assert pushing.push(client, request, [finding("TB204", "so so")]).findings[0].text == "so so"


def test_a_dry_run_changes_nothing(hub, push):
    done = push(dry_run=True)
    assert (done.commit, done.new, len(done.written)) == (None, True, 6)
    assert hub.repos == {}
    push()
    assert push(dry_run=True).written == ()


def test_someone_else_pushes_meanwhile(hub, push):
    repo = hub.add("org/name", {"a": ""})
    hub.hooks["POST .*/commit/main"] = lambda: repo.commit({"a": b"theirs"})
    with pytest.raises(errors.Conflict) as error:
        push()
    assert (str(error.value), error.value.exit_code) == ("org/name: the repository changed; pull first", 3)
    assert repo.head() == {"a": b"theirs"}


def test_an_answer_that_is_lost_is_no_conflict(hub, push):
    repo = hub.add("org/name", {})
    pushed = {}

    def answered_elsewhere():
        done = push()
        pushed["commit"] = done.commit

    hub.hooks["POST .*/preupload/main"] = answered_elsewhere
    assert push().commit == pushed["commit"]
    assert repo.branches["main"] == pushed["commit"]


def test_what_was_pulled_is_pushed_only_on_top_of_that(hub, push, pull, tmp_path):
    push()
    first = pull("org/name").snapshot.commit
    mine = tmp_path / "into" / "org__name"
    (mine / "adapter.py").write_text("class Adapter: ...\n")
    repo = hub.repos["org/name"]
    theirs = repo.commit({**repo.head(), "vllm_bundle/theirs.py": b""})
    with pytest.raises(errors.Conflict):
        push(folder=mine)
    assert push(folder=mine, pull_request=True).pull_request == f"{hub.url}/org/name/discussions/1"
    repo.branches["main"] = first
    done = push(folder=mine)
    assert theirs != done.commit == read_origin(mine).commit
    (mine / "adapter.py").write_text("class Adapter: pass\n")
    assert push(folder=mine).commit == read_origin(mine).commit


def test_a_pull_request_leaves_the_branch(hub, push):
    repo = hub.add("org/name", {})
    head = repo.branches["main"]
    done = push(pull_request=True)
    assert repo.branches["main"] == head
    assert repo.branches["refs/pr/1"] == done.commit


def test_another_branch_is_made(hub, push):
    repo = hub.add("org/name", {"a": ""})
    head = repo.branches["main"]
    done = push(branch="dev/x")
    assert (repo.branches["main"], repo.branches["dev/x"]) == (head, done.commit)
    assert repo.head("dev/x").keys() >= {"a", *BUNDLE}


@pytest.mark.parametrize(
    ("path", "found"),
    [("vllm_metadata.json", "vllm_metadata.json"), ("vllm_models/x/vllm_metadata.json", "vllm_models/")],
)
def test_a_package_of_another_tool_is_not_mixed_with_ours(hub, push, path, found):
    hub.add("org/name", {path: "{}"})
    with pytest.raises(OtherLayout) as error:
        push()
    assert str(error.value) == (
        f"org/name holds a bundle that was not pushed by this tool ({found}). Push to another repository or branch."
    )


def test_a_file_that_the_hub_leaves_out_is_noticed(hub, push, monkeypatch):
    repo = hub.add("org/name", {})
    commit = repo.commit
    monkeypatch.setattr(
        repo, "commit", lambda files, **more: commit({k: v for k, v in files.items() if "model" not in k}, **more)
    )
    with pytest.raises(Incomplete) as error:
        push()
    assert str(error.value) == (
        f"org/name at commit {repo.branches['main'][:12]} does not hold 'vllm_bundle/tt/model.py' as it was pushed. "
        "Does the repository's .gitignore name it?"
    )


NO_RIGHT = {
    "a token to read with": (
        "hf_reader",
        errors.NotAllowed,
        "{host} does not allow this token to write to org/name. Use a token with that right, or another repository.",
    ),
    "a wrong token": (
        "hf_wrong",
        errors.TokenRefused,
        "{host} refused the token. Check HF_TOKEN, or log in again with 'hf auth login'.",
    ),
    "no token": (
        None,
        errors.NotFoundOrPrivate,
        "org/name does not exist on {host} or is private, and no token was given: set HF_TOKEN or run 'hf auth login'.",
    ),
}


@pytest.mark.parametrize(("token", "kind", "message"), NO_RIGHT.values(), ids=NO_RIGHT)
def test_no_right_to_push(hub, push, client_for, token, kind, message):
    hub.add("org/name", {}, private=True)
    with pytest.raises(kind) as error:
        push(using=client_for(token))
    assert str(error.value) == message.format(host=hub.url)


@pytest.mark.parametrize("launch", [None, LAUNCH])
def test_what_tt_model_needs_to_pull_and_serve_it(hub, push, folder, launch):
    """Its checks as they are known: manifest, listed files, metadata, and a launch entry to start from."""
    if launch:
        (folder / "vllm_metadata.json").write_text(json.dumps({**json.loads(METADATA), "launch": launch}))
    push()
    head = hub.repos["org/name"].head()
    manifest = Manifest.parse(head["tt_kernel_manifest.json"])
    assert manifest.root["arch"] in ("wormhole_b0", "blackhole")
    assert all(head[path] for path in manifest.files)
    metadata = json.loads(head["vllm_bundle/vllm_metadata.json"])
    if manifest.root["schema_version"] == "4":
        metadata = json.loads(manifest.rendered())
    assert metadata["arch"] == "LlamaForCausalLM"
    assert metadata["main_class"] == "adapter:Adapter"
    assert isinstance(metadata.get("hf_weights"), str | None)
    assert "capabilities" not in metadata
    assert all(isinstance(word, str) for word in metadata["launch"]["default"]["command"])


def test_a_readme_that_the_hub_does_not_accept(hub, push):
    body = b'{"errors": [{"message": "no such license"}], "warnings": []}'
    hub.faults["POST /api/validate-yaml"] = {"code": 400, "body": body, "headers": {"Content-Type": "application/json"}}
    with pytest.raises(ChangeRefused) as error:
        push()
    assert str(error.value) == (
        f"{hub.url} does not accept the README.md of org/name: its front matter is not what the Hub allows."
    )
