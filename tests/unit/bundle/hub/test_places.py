import pytest

from vllm_tt.bundle.hub.places import install_folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_where_bundles_are_looked_for_comes_first(home):
    (home / "a").mkdir()
    environ = {"EXTRA_MODELS_DIR": f"{home}/a:{home}/b", "TT_MODEL_BUNDLES_DIR": "/other"}
    assert install_folder(environ) == home / "a"


def test_then_tt_models_own_folder(home):
    assert install_folder({"TT_MODEL_BUNDLES_DIR": "~/kept"}) == home / "kept"
    assert install_folder({}) == home / ".cache" / "tt-model" / "bundles"


def test_the_folder_of_an_older_tt_model_goes_on_being_used(home):
    older = home / ".cache" / "tt-kernel" / "bundles"
    older.mkdir(parents=True)
    assert install_folder({}) == older
