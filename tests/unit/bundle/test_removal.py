import pytest

from vllm_tt.bundle.removal import NotInstalled, installed


def test_by_the_folders_name(add, tmp_path):
    good, broken = add("good"), add("broken", text="[]")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "plain").mkdir()
    for name, place in {"good": good, "broken": broken, "dangling": tmp_path / "dangling"}.items():
        assert installed(name, [tmp_path / "no such folder", tmp_path]) == place


@pytest.mark.parametrize(
    ("name", "shown", "near"),
    [
        ("plain", "'plain'", ""),
        ("god", "'god'", " Did you mean good?"),
        ("../good", "'../good'", " Did you mean good?"),
        (".hidden", "'.hidden'", ""),
        ("", "''", ""),
    ],
)
def test_nothing_else(add, tmp_path, name, shown, near):
    add("good")
    add(".hidden")
    (tmp_path / "plain").mkdir()
    with pytest.raises(NotInstalled) as raised:
        installed(name, [tmp_path])
    assert str(raised.value) == f"There is no bundle {shown} in {tmp_path}.{near}"
