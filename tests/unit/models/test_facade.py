import pytest

from vllm_tt.models.entry import Entry
from vllm_tt.models.facade import Facade, FacadeRun, facade

ENTRY = Entry(arch="TTNovelForCausalLM", main_class="collections:OrderedDict", source="override")


def test_a_facade_has_the_registered_name_and_loads_the_class():
    assert facade(ENTRY).__name__ == "TTNovelForCausalLM"
    assert issubclass(facade(ENTRY), Facade)
    assert facade(ENTRY).load().__name__ == "OrderedDict"


def test_a_facade_does_not_run():
    with pytest.raises(FacadeRun) as caught:
        facade(ENTRY)(vllm_config=None)
    assert str(caught.value) == (
        "TTNovelForCausalLM stands for a model of the Tenstorrent worker: vLLM's own model loader cannot run it."
    )
