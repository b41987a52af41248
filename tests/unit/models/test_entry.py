import pytest

from vllm_tt.contract import Capabilities
from vllm_tt.models.entry import Entry
from vllm_tt.models.loader import ImportFailed, ModuleMissing


def entry(bundle, adapter, **options):
    return Entry.of_bundle("LlamaForCausalLM", bundle("mine", adapter=adapter, **options))


def test_names_of_a_bundles_entry(bundle):
    one = entry(bundle, "")
    assert (one.arch, one.plain, one.origin) == ("TTLlamaForCausalLM", "LlamaForCausalLM", "bundle mine")


def test_a_prefixed_architecture_has_no_plain_name(bundle):
    one = Entry.of_bundle("TTQwen38ForCausalLM", bundle("mine"))
    assert (one.arch, one.plain) == ("TTQwen38ForCausalLM", None)


def test_a_literal_is_read_though_the_adapter_cannot_be_imported(bundle):
    one = entry(bundle, "import no_such\nclass Model: model_capabilities = {'supports_async_decode': True}")
    assert one.capabilities() == Capabilities(supports_async_decode=True)
    with pytest.raises(ImportFailed):
        one.load()


def test_the_class_is_asked_where_the_text_does_not_tell(bundle):
    one = entry(bundle, "FLAGS = dict(supports_prefix_caching=True)\nclass Model: model_capabilities = FLAGS")
    assert one.capabilities() == Capabilities(supports_prefix_caching=True)
    assert one.load().model_capabilities == {"supports_prefix_caching": True}


def test_a_faulty_declaration_is_warned_about_once(bundle, log):
    one = entry(bundle, "class Model: model_capabilities = {'supports_async_decode': 'yes'}")
    assert one.capabilities() == one.capabilities() == Capabilities()
    assert log == ["WARNING bundle mine: supports_async_decode must be bool, got 'yes'; ignored"]


def test_a_built_in_needs_tt_metal_only_when_it_is_asked(monkeypatch):
    monkeypatch.delenv("TT_METAL_HOME", raising=False)
    one = Entry(arch="TTLlama", plain="Llama", main_class="models.no_such.gen:Model", source="builtin")
    with pytest.raises(ModuleMissing, match="built-in model TTLlama: there is no module"):
        one.capabilities()


def test_a_built_in_is_read_from_the_path_without_importing(tmp_path, monkeypatch):
    (tmp_path / "models/demos").mkdir(parents=True)
    (tmp_path / "models/base.py").write_text(
        "import no_such\nclass Base: model_capabilities = {'max_device_top_k': 32}"
    )
    (tmp_path / "models/demos/gen.py").write_text("from models.base import Base\nclass Model(Base): pass")
    monkeypatch.syspath_prepend(tmp_path)
    one = Entry(arch="TTLlama", main_class="models.demos.gen:Model", source="builtin")
    assert one.capabilities() == Capabilities(max_device_top_k=32)


LLAMA_GALAXY = "models.demos.llama3_70b_galaxy.tt.generator_vllm"


def test_the_class_of_a_single_execute_built_in_serves_lanes_without_saying_so(tmp_path, monkeypatch):
    folder = tmp_path.joinpath(*LLAMA_GALAXY.split(".")[:-1])
    folder.mkdir(parents=True)
    (folder / "generator_vllm.py").write_text("class LlamaForCausalLM: pass\nclass Other: pass")
    monkeypatch.syspath_prepend(tmp_path)
    one = Entry(arch="TTLlamaForCausalLM", main_class=f"{LLAMA_GALAXY}:LlamaForCausalLM", source="builtin")
    assert one.capabilities() == Capabilities(supports_lanes=True)
    other = Entry(arch="TTLlamaForCausalLM", main_class=f"{LLAMA_GALAXY}:Other", source="override")
    assert other.capabilities() == Capabilities()


@pytest.mark.parametrize("arch", ["LlamaForCausalLM", "TTLlamaForCausalLM"])
def test_a_bundle_that_names_a_built_in_class_is_that_class(bundle, arch):
    one = Entry.of_bundle(arch, bundle("mine", main_class=f"{LLAMA_GALAXY}:LlamaForCausalLM"))
    assert (one.variant.lanes, one.made_for) == (True, ("TG",))
    copied = bundle("copied", main_class="models.mine:LlamaForCausalLM", files={"models/mine.py": ""})
    assert Entry.of_bundle(arch, copied).variant is None


def test_a_machine_that_the_class_was_not_made_for(bundle):
    galaxy = Entry(arch="TTLlamaForCausalLM", main_class=f"{LLAMA_GALAXY}:LlamaForCausalLM", source="builtin")
    assert galaxy.doubt({"MESH_DEVICE": "T3K", "TT_EMULATE": "TG"}) == (
        "built-in model TTLlamaForCausalLM was made for TG; this mesh is T3K"
    )
    fine = [{}, {"MESH_DEVICE": "TG"}, {"MESH_DEVICE": "(8,4)"}, {"TT_EMULATE": "TG"}]
    assert [galaxy.doubt(environ) for environ in fine] == [None] * 4
    mine = Entry.of_bundle("LlamaForCausalLM", bundle("mine", mesh_devices=["N150", "N300"]))
    assert mine.doubt({"TT_EMULATE": "TG"}) == "bundle mine was made for N150, N300; this mesh is TG"
    assert Entry.of_bundle("LlamaForCausalLM", bundle("any")).doubt({"MESH_DEVICE": "TG"}) is None
