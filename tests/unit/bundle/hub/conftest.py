"""A Hub of the test's own, a client of it, and a bundle to push."""

import pytest
from fake_hub import FakeHub
from hub_cases import ADAPTER, METADATA
from hub_process import confine

from vllm_tt.bundle.hub import pull as pulling
from vllm_tt.bundle.hub import push as pushing
from vllm_tt.bundle.hub.client import connect
from vllm_tt.bundle.hub.download import Quiet
from vllm_tt.bundle.hub.repo import parse_ref


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch, tmp_path):
    confine(monkeypatch, tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_test")


@pytest.fixture
def hub():
    with FakeHub(tokens=("hf_test", "hf_reader", "hf_granted")) as running:
        yield running


@pytest.fixture
def environ(hub, tmp_path):
    return {"HF_ENDPOINT": hub.url, "TT_VLLM_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def client_for(environ, monkeypatch):
    """A client with a token, or with none."""

    def make(token="hf_test"):
        if token is None:
            monkeypatch.delenv("HF_TOKEN")
        else:
            monkeypatch.setenv("HF_TOKEN", token)
        made = connect(environ)
        return type(made)(api=made.api, endpoint=made.endpoint, has_token=made.has_token, waits=(0.0, 0.0))

    return make


@pytest.fixture
def client(client_for):
    return client_for()


@pytest.fixture
def pull(client, environ, tmp_path):
    """Pulls into ``tmp_path/into``."""

    def run(text, *, using=None, into=None, **options):
        request = pulling.Request(ref=parse_ref(text), into=into or tmp_path / "into", **options)
        return pulling.pull(using or client, request, lambda _total: Quiet(), environ)

    return run


@pytest.fixture
def folder(tmp_path):
    """A bundle."""
    place = tmp_path / "source" / "mine"
    (place / "tt").mkdir(parents=True)
    (place / "vllm_metadata.json").write_text(METADATA)
    (place / "adapter.py").write_text(ADAPTER)
    (place / "tt" / "model.py").write_text("LAYERS = 1\n")
    return place


@pytest.fixture
def push(client, folder):
    def run(repo="org/name", *, using=None, **options):
        return pushing.push(using or client, pushing.Request(**{"folder": folder, "repo": repo, **options}))

    return run


@pytest.fixture
def tree():
    """The files below a folder: path to bytes, our record of the origin left out."""

    def read(folder):
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        files.pop(".tt-bundle-origin.json", None)
        return files

    return read
