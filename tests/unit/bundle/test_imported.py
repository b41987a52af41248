"""Imports adapters in processes of their own; each process costs a tenth of a second."""

import json

import pytest
from bundle_cases import ROOT

from vllm_tt.bundle.validate import Depth, chosen, validate

GOOD = (ROOT / "invalid/unknown-key/adapter.py").read_text()


@pytest.fixture
def imported(tmp_path):
    def make(adapter, *, seconds=30, files=None, **fields):
        place = tmp_path / "model"
        place.mkdir()
        metadata = {"arch": "LlamaForCausalLM", "main_class": "adapter:Model", **fields}
        (place / "vllm_metadata.json").write_text(json.dumps(metadata))
        (place / "adapter.py").write_text(adapter)
        for path, text in (files or {}).items():
            (place / path).write_text(text)
        report = validate(place, Depth(import_seconds=seconds))
        found = chosen(report.findings, ignore=("TB213",))
        places = {"": "-"}
        return [
            f"{places.get(one.file, one.file)}:{one.line or '-'} {one.severity.value} {one.code} {one.message}"
            + (f" [{one.hint}]" if one.hint else "")
            for one in found
        ]

    return make


def test_a_good_adapter_is_good(imported):
    assert imported(GOOD, files={"rope.py": ""}) == []


CASES = {
    "missing": (
        "import no_such_ttnn.ops\n" + GOOD,
        ["-:- warning TB310 not checked: importing needs 'no_such_ttnn'"],
    ),
    "raises": (
        GOOD + "\n\nSIZE = {}['size']\n",
        ["adapter.py:22 error TB310 import fails: KeyError: 'size'"],
    ),
    "exits": (
        "print('no device')\nraise SystemExit(3)\n" + GOOD,
        ["-:- error TB312 import ends the process: SystemExit(3) [it last printed 'no device']"],
    ),
    "dies": (
        "import os\nos._exit(5)\n" + GOOD,
        ["-:- error TB312 importing 'adapter' ended the process (exit code 5)"],
    ),
    "killed": (
        "import os\nos.kill(os.getpid(), 9)\n" + GOOD,
        ["-:- error TB312 importing 'adapter' ended the process (SIGKILL)"],
    ),
    "abstract": (
        "import abc\n"
        + GOOD.replace("class Model:", "class Model(abc.ABC):")
        + "\n    @abc.abstractmethod\n    def embed(self):\n        pass\n",
        ["adapter.py:2 error TB412 Model is abstract: 'embed' must be defined"],
    ),
    "capacity": (
        GOOD + "\n    @classmethod\n    def get_max_tokens_all_users(cls, max_model_len, max_num_seqs, **_):\n"
        "        return str(max_model_len * max_num_seqs)\n",
        ["-:- error TB408 get_max_tokens_all_users() must return a positive integer, got '65536'"],
    ),
    "capacity raises": (
        GOOD + "\n    @classmethod\n    def get_max_tokens_all_users(cls, **_):\n        return cls.tokens\n",
        [
            (
                "-:- error TB408 get_max_tokens_all_users() must return a positive integer, got "
                "\"AttributeError: type object 'Model' has no attribute 'tokens'\""
            )
        ],
    ),
    "made at run time": (
        (
            "def make():\n    class Model:\n        model_capabilities = {'supports_async_decode': 1}\n"
            "    return Model\n\n\nModel = make()\n"
        ),
        [
            "-:- error TB401 Model lacks 'allocate_kv_cache' (or 'allocate_kv_cache_per_layer')",
            "-:- error TB401 Model lacks 'decode_forward'",
            "-:- error TB401 Model lacks 'initialize_vllm_model'",
            "-:- error TB401 Model lacks 'prefill_forward'",
            "-:- error TB401 Model lacks 'warmup_model_decode'",
            "-:- error TB401 Model lacks 'warmup_model_prefill'",
            "-:- error TB502 supports_async_decode must be true or false, got 1",
        ],
    ),
    "not a class": (
        "def make():\n    return 7\n\n\nModel = make()\n",
        ["-:- error TB304 'adapter:Model' is a value of type int, not a class"],
    ),
    "a decorator that changes the parameters": (
        "def narrow(function):\n    return lambda self, tokens, sampled: function(self, tokens)\n\n\n"
        + GOOD.replace("    def decode_forward", "    @narrow\n    def decode_forward"),
        [
            *[
                f"-:- error TB402 decode_forward() does not accept '{name}' [accept it by name, or take **kwargs]"
                for name in ("page_table", "kv_cache", "start_pos", "enable_trace", "read_from_device")
            ],
            "-:- error TB403 decode_forward() requires 'sampled', which is never passed [give it a default]",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_an_import_shows(imported, name):
    adapter, lines = CASES[name]
    assert sorted(imported(adapter)) == sorted(lines)


@pytest.mark.timeout(60)
def test_an_import_that_hangs_is_ended_with_all_it_started(imported):
    adapter = "import subprocess, time\nsubprocess.Popen(['sleep', '300'])\nprint('waiting')\ntime.sleep(300)\n" + GOOD
    assert imported(adapter, seconds=3) == ["-:- error TB312 import did not finish in 3 s [it last printed 'waiting']"]


def test_what_it_prints_is_not_ours_and_holds_no_secrets(imported, capfd):
    token = "hf_" + "aB3" * 12
    adapter = f"import sys\nprint('noise')\nprint('{token}', file=sys.stderr)\nsys.exit('{token}')\n" + GOOD
    assert imported(adapter) == [
        (
            "-:- error TB312 import ends the process: SystemExit('<a Hugging Face token>') "
            "[it last printed '<a Hugging Face token>']"
        )
    ]
    assert capfd.readouterr() == ("", "")


def test_a_bundle_without_a_module_is_not_imported(imported):
    lines = imported(GOOD, main_class="adaptor:Model")
    assert [line.split(" ")[2] for line in lines] == ["TB301"]
