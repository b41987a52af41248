from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from vllm_tt.host.checkpoint import CheckpointNotFound, checkpoint_folder

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Config:
    """What the adapter gets: a configuration that knows where it was read from."""

    def __init__(self, name: str, commit: str | None = None) -> None:
        self._name_or_path = name
        self._commit_hash = commit


def test_the_folder_that_is_served(tmp_path: Path) -> None:
    assert checkpoint_folder(Config(str(tmp_path)), environ={}) == tmp_path


def test_the_environment_names_another(tmp_path: Path) -> None:
    assert checkpoint_folder(Config("/nowhere"), environ={"HF_MODEL": str(tmp_path)}) == tmp_path


@pytest.mark.parametrize("source", ["served", "environment"])
def test_a_snapshot_of_a_hub_model(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the Hub switched off, as everywhere in the tests."""
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    refs = tmp_path / "models--org--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    if source == "served":
        assert checkpoint_folder(Config("org/tiny", COMMIT), environ={}) == snapshot
    else:
        assert checkpoint_folder(Config("/nowhere", "other"), environ={"HF_MODEL": "org/tiny"}) == snapshot


@pytest.mark.parametrize(
    ("name", "environ", "message"),
    [
        (
            "",
            {},
            (
                "No weights for '' (the model being served): expected a folder that exists, or a Hub model that is "
                "reachable or already downloaded. Set HF_MODEL."
            ),
        ),
        (
            "/nowhere/at/all",
            {},
            (
                "No weights for '/nowhere/at/all' (the model being served): expected a folder that exists, or a Hub "
                "model that is reachable or already downloaded. There is no such folder."
            ),
        ),
        (
            "",
            {"HF_MODEL": "./nowhere"},
            (
                "No weights for './nowhere' (HF_MODEL): expected a folder that exists, or a Hub model that is "
                "reachable or already downloaded. There is no such folder."
            ),
        ),
    ],
)
def test_a_folder_that_is_not_there(name: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(CheckpointNotFound, match=f"^{re.escape(message)}$"):
        checkpoint_folder(Config(name), environ)


@pytest.mark.parametrize("name", ["org/never-downloaded", "a/b/c"])
def test_a_hub_model_that_cannot_be_had(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointNotFound, match=rf"^No weights for '{name}' \(the model being served\): "):
        checkpoint_folder(Config(name), environ={})
