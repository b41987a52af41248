"""Lanes that the mesh does not divide into, where only the opened mesh tells."""

import pytest
from engine import engine
from oracle_device import SAMPLES, device

from vllm_tt.platform.lanes import UnevenLanes


def test_the_opened_mesh_is_closed_again(checkpoint, monkeypatch, caplog):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "0")
    caplog.set_level("INFO", "vllm.tt")
    with (
        device(SAMPLES | {"supports_lanes": True}, contract=1),
        pytest.raises(UnevenLanes) as caught,
        engine(checkpoint, additional_config={"tt": {"lanes": 3}}, max_model_len=256, max_num_seqs=2),
    ):
        pass
    assert str(caught.value) == (
        "3 lanes do not divide the 2 chips of the 1x2 mesh, of which each lane gets an equal part. Use 1 or 2 lanes, "
        "or another mesh (MESH_DEVICE)."
    )
    assert caplog.messages[-1] == "Mesh device closed, fabric is DISABLED"
