import socket

import pytest

from vllm_tt.bundle.hub import errors
from vllm_tt.bundle.hub.client import connect
from vllm_tt.bundle.hub.repo import parse_ref


@pytest.fixture
def history(hub):
    """Two commits: the first tagged, the second also on a branch."""
    repo = hub.add("org/name", {"a": "1"})
    first = repo.branches["main"]
    repo.tags["v1"] = first
    second = repo.commit({"a": "2"})
    repo.branches["dev/x"] = second
    return first, second


def test_every_kind_of_revision_becomes_a_commit(client, history):
    first, second = history
    expected = {
        "": second, "@main": second, "@dev/x": second, "@v1": first, f"@{first}": first, f"@{first[:7]}": first,
    }  # fmt: skip
    for text, commit in expected.items():
        found = client.snapshot(parse_ref("org/name" + text))
        assert (found.commit, found.revision) == (commit, text[1:] or "main")
        assert found.files["a"].size == 1


def test_a_short_sha_of_two_commits(client, hub):
    repo = hub.add("org/name", {})
    head = repo.branches["main"]
    repo.branches["other"] = head[:8] + "0" * 32
    repo.commits[repo.branches["other"]] = {}
    repo.parents[repo.branches["other"]] = None
    repo.messages[repo.branches["other"]] = ""
    with pytest.raises(errors.AmbiguousCommit) as error:
        client.snapshot(parse_ref(f"org/name@{head[:8]}"))
    both = ", ".join(sorted([head[:12], head[:8] + "0000"]))
    assert str(error.value) == (
        f"org/name has several commits that start with {head[:8]}: {both}. Give more of the sha."
    )


@pytest.mark.parametrize("revision", ["nope", "abcdef1", "f" * 40])
def test_no_such_revision(client, history, revision):
    with pytest.raises(errors.RevisionMissing) as error:
        client.snapshot(parse_ref(f"org/name@{revision}"))
    assert str(error.value) == f"org/name has no branch, tag or commit {revision!r}."


UNKNOWN = "{repo} does not exist on {host} or is private, and no token was given: set HF_TOKEN or run 'hf auth login'."
NO_ACCESS = {
    "missing-without-token": ("org/none", None, errors.NotFoundOrPrivate, UNKNOWN),
    "private-without-token": ("org/private", None, errors.NotFoundOrPrivate, UNKNOWN),
    "missing": (
        "org/none",
        "hf_test",
        errors.NotFound,
        "{repo} does not exist on {host}, or the token given may not see it. Check the name, and whose token it is.",
    ),
    "wrong-token": (
        "org/private",
        "hf_wrong",
        errors.TokenRefused,
        "{host} refused the token. Check HF_TOKEN, or log in again with 'hf auth login'.",
    ),
}


@pytest.mark.parametrize(("repo", "token", "kind", "message"), NO_ACCESS.values(), ids=NO_ACCESS)
def test_no_access(hub, client_for, repo, token, kind, message):
    hub.add("org/private", {}, private=True)
    with pytest.raises(kind) as error:
        client_for(token).snapshot(parse_ref(repo))
    assert str(error.value) == message.format(host=hub.url, repo=repo)
    assert error.value.exit_code == 3
    assert error.value.__suppress_context__


def test_a_server_that_fails_twice_is_asked_again(client, hub):
    hub.add("org/name", {})
    hub.faults["GET /api/models/org/name"] = {"code": 503, "times": 2}
    assert client.snapshot(parse_ref("org/name")).repo == "org/name"


def test_a_server_that_goes_on_failing(client, hub):
    hub.faults["GET /api/models/.*"] = {"code": 502, "times": 99}
    with pytest.raises(errors.ServerFault) as error:
        client.snapshot(parse_ref("org/name"))
    assert str(error.value) == (f"{hub.url} failed with status 502. Nothing was changed; the same command tries again.")


def unused_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_nobody_listens():
    url = f"http://user:hf_secret@127.0.0.1:{unused_port()}"
    with pytest.raises(errors.Unreachable) as error:
        connect({"HF_ENDPOINT": url}).snapshot(parse_ref("org/name"))
    assert str(error.value) == (
        f"Cannot reach {url.replace('user:hf_secret@', '')}: connection refused. Nothing was changed; the same command "
        "tries again and keeps what is complete."
    )


def test_a_server_that_hangs_up(client, hub):
    hub.faults["GET /api/models/.*"] = {"drop": True, "times": 99}
    with pytest.raises(errors.Unreachable) as error:
        client.snapshot(parse_ref("org/name"))
    assert str(error.value).startswith(f"Cannot reach {hub.url}: the connection broke. ")


def test_offline(client, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(errors.Offline) as error:
        client.snapshot(parse_ref("org/name"))
    assert str(error.value) == (
        f"HF_HUB_OFFLINE is set, so {hub.url} was not asked for org/name. Unset it to use the Hub."
    )
    assert hub.requests == []


@pytest.mark.parametrize("address", ["huggingface.co", "ftp://x", "http://"])
def test_an_address_that_is_none(address):
    with pytest.raises(errors.AddressInvalid) as error:
        connect({"HF_ENDPOINT": address})
    assert str(error.value) == (f"HF_ENDPOINT={address!r} is not an address: expected http://host or https://host.")


def test_the_token_is_in_no_representation(client):
    assert "hf_test" not in repr(client)
    assert client.has_token


def test_the_client_of_the_hub_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(errors.HubMissing) as error:
        connect({})
    assert str(error.value) == (
        "huggingface_hub is not installed, and the Hub is reached through it. Run: pip install huggingface_hub"
    )
