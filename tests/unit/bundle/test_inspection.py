import io
import json

import pytest

from vllm_tt.bundle.compression import ArchiveRefused
from vllm_tt.bundle.files import LOCK_NAME, select
from vllm_tt.bundle.hub.layouts import NoBundle
from vllm_tt.bundle.inspection import inspect, opened, signatures
from vllm_tt.bundle.lock import make
from vllm_tt.bundle.pack import pack

ADAPTER = """
class Base:
    def decode_forward(self, tokens, *, page_table, start_pos=None, **kwargs): ...

class Model(Base):
    model_capabilities = {"supports_prefix_caching": True}
    decode_input_update_contract = 1
    limit = 3

    @classmethod
    def initialize_vllm_model(cls, hf_config, mesh_device, max_batch_size, /, *args, max_seq_len): ...

    @staticmethod
    def get_max_tokens_all_users(**kwargs): ...

    @property
    def device(self): ...

    @unknown
    def warmup(self): ...

    async def later(self): ...

    def _inner(self): ...
"""


@pytest.fixture
def folder(add):
    place = add("mine", name="mine")
    (place / "adapter.py").write_text(ADAPTER)
    return place


def test_a_bundle(folder):
    found = inspect(folder)
    assert (found.layout, found.lock_state, found.manifest, found.origin) == ("root", "none", None, None)
    assert found.contents == make(select(folder))
    assert found.size == found.contents.files[0].size + found.contents.files[1].size
    (view,) = found.bundles
    assert (view.name, view.metadata.name, view.findings) == (None, "mine", ())
    assert view.adapter.capabilities == {"supports_prefix_caching": True}
    assert view.adapter.decode_contract == 1
    assert signatures(view.adapter) == {
        "decode_forward": "(tokens, *, page_table, start_pos=..., **kwargs)",
        "device": "property",
        "get_max_tokens_all_users": "staticmethod (**kwargs)",
        "initialize_vllm_model": "classmethod (hf_config, mesh_device, max_batch_size, /, *args, max_seq_len)",
        "later": "async ()",
        "warmup": "(?)",
    }


def test_an_adapter_from_elsewhere(add):
    (view,) = inspect(add("mine", main_class="models.tt.gen:Model")).bundles
    assert view.adapter is None
    assert signatures(view.adapter) == {}


def test_metadata_that_cannot_be_registered(add):
    (view,) = inspect(add("mine", text="[]")).bundles
    assert view.metadata is None
    assert [found.code for found in view.findings] == ["TB105"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda file: None, "matches"),
        (lambda file: file.write_text("[]"), "malformed"),
        (lambda file: (file.parent / "more.py").touch(), "differs"),
    ],
)
def test_the_lock(folder, change, state):
    file = folder / LOCK_NAME
    file.write_bytes(make(select(folder)).to_bytes())
    change(file)
    assert inspect(folder).lock_state == state


def test_no_bundle(tmp_path):
    with pytest.raises(NoBundle):
        inspect(tmp_path)


def write(root, files):
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text if isinstance(text, str) else json.dumps(text))


ARCH = {"arch": "LlamaForCausalLM", "main_class": "adapter:Model"}
PACKAGES = {
    "3": ({"vllm_bundle/vllm_metadata.json": ARCH, "vllm_bundle/adapter.py": ADAPTER}, "vllm_bundle"),
    "5": (
        {"vllm_models/llama/vllm_metadata.json": ARCH, "metal/adapter.py": ADAPTER, "run.sh": ""},
        "vllm_models with metal/",
    ),
    "6": ({"vllm_models/llama/vllm_metadata.json": ARCH, "adapter.py": ADAPTER}, "vllm_models with code at the root"),
}


@pytest.mark.parametrize("version", PACKAGES)
def test_packages_of_tt_model(tmp_path, version):
    files, layout = PACKAGES[version]
    manifest = {"schema_version": version, "name": "llama", "bundled": {"metal_dir": "metal"}}
    write(tmp_path, {**files, "tt_kernel_manifest.json": manifest})
    found = inspect(tmp_path)
    assert (found.layout, found.manifest) == (layout, manifest)
    (view,) = found.bundles
    assert view.metadata.arch == "LlamaForCausalLM"
    assert view.adapter.capabilities == {"supports_prefix_caching": True}


def test_a_manifest_alone(tmp_path):
    manifest = {"schema_version": "4", "entrypoint": {"cls": "models.x:Model", "arch_name": "Qwen3ForCausalLM"}}
    write(tmp_path, {"tt_kernel_manifest.json": manifest})
    found = inspect(tmp_path)
    (view,) = found.bundles
    assert (found.layout, view.metadata.arch, view.adapter) == ("manifest", "Qwen3ForCausalLM", None)


def test_an_archive_is_opened_in_a_folder_that_goes_away(folder, tmp_path):
    out = io.BytesIO()
    pack(select(folder), out)
    file = tmp_path / "mine.tar.gz"
    file.write_bytes(out.getvalue())
    with opened(file, 1 << 20) as inner:
        assert inspect(inner).contents == inspect(folder).contents
        assert inspect(inner).lock_state == "matches"
    assert not inner.parent.exists()
    with opened(folder, 1 << 20) as inner:
        assert inner == folder


def test_what_is_no_archive(tmp_path):
    (tmp_path / "x.tar.gz").write_text("x")
    with pytest.raises(ArchiveRefused), opened(tmp_path / "x.tar.gz", 1 << 20):
        pass
