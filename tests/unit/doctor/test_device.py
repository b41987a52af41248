import pytest

from vllm_tt.doctor.device import devices


@pytest.fixture
def machine(tmp_path):
    def make(*cards):
        for number, card in enumerate(cards):
            (tmp_path / "dev").mkdir(exist_ok=True)
            (tmp_path / "dev" / str(number)).touch()
            if card:
                (tmp_path / "sys" / f"tenstorrent!{number}").mkdir(parents=True)
                (tmp_path / "sys" / f"tenstorrent!{number}" / "tt_card_type").write_text(card + "\n")
        return {"nodes": tmp_path / "dev", "sysfs": tmp_path / "sys"}

    return make


def told(items):
    return [(item.level, item.found) for item in items]


def test_no_device(machine):
    (item,) = devices({}, **machine())
    assert (item.level, item.found) == ("problem", "no Tenstorrent device (/dev/tenstorrent)")
    assert item.remedy.startswith("To serve without devices, set TT_EMULATE=N300.")


def test_devices_with_their_types(machine):
    assert told(devices({}, **machine("n300", ""))) == [("ok", "2 devices: n300, 1")]


def test_an_emulated_machine(machine):
    environ = {"TT_EMULATE": "T3K", "TT_VLLM_CACHE": "/fine"}
    assert told(devices(environ, **machine())) == [("ok", "T3K is emulated (TT_EMULATE): operations do not compute")]
    assert told(devices(environ, **machine("n150")))[1:] == [("note", "1 device not used")]


def test_a_cache_that_cannot_hold_an_emulated_machine(machine):
    items = told(devices({"TT_EMULATE": "T3K", "TT_VLLM_CACHE": "/my cache"}, **machine()))
    assert items[1] == ("problem", "the cache folder /my cache has ' ' in its path")
