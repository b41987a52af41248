import pytest

from vllm_tt.cli.builtin_lines import builtin_details, builtin_lines
from vllm_tt.models import builtin
from vllm_tt.models.inventory import builtin_rows

GALAXY = """\
REGISTERED          VARIANT            MESHES  SERVED
TTLlamaForCausalLM  tt_transformers    any     yes
  models.tt_transformers.tt.generator_vllm:LlamaForCausalLM
  Selected by TT_LLAMA_TEXT_VER=tt_transformers (the default)
  Tokens for all users: 131072; 32768 for Llama-3.1-8B on N150
  --max-model-len should be a power of two: warm-up takes those
TTLlamaForCausalLM  llama3_70b_galaxy  TG      lanes
  models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM
  Selected by TT_LLAMA_TEXT_VER=llama3_70b_galaxy
  Tokens for all users: 131072
  On TG: --data-parallel-size 4 --max-num-seqs 8 --async-scheduling
    --additional-config.tt.sample_on_device_mode all
    --additional-config.tt.dispatch_core_axis col
    --additional-config.tt.fabric_config FABRIC_1D_RING
    --additional-config.tt.worker_l1_size 1344544
    --additional-config.tt.trace_region_size 220000000
"""


def test_a_row_and_what_the_class_takes_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert "\n".join(builtin_lines(builtin_rows("ttllama", "TG"))) + "\n" == GALAXY


@pytest.mark.parametrize("width", [80, 120])
def test_all_fits_into_the_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [line for line in builtin_lines(builtin_rows()) if not line.startswith("  models.")]
    assert 60 < max(map(len, lines)) <= width


def test_what_is_not_served_yet_says_why(monkeypatch):
    monkeypatch.setattr(builtin, "NOT_YET", frozenset(builtin.Feature))
    (row,) = builtin_rows("Gemma3")
    assert list(builtin_details(row)) == [
        "Not served yet: images in the prompt, several KV cache groups",
        "Tokens for all users: 131072; 65536 for 4B on N150, N300",
    ]
    assert list(builtin_lines([row]))[1].split() == ["TTGemma3ForConditionalGeneration", "-", "any", "not", "yet"]


def test_a_variable_that_is_needed():
    (row,) = builtin_rows("deepseek")
    assert "Needs DEEPSEEK_V3_HF_MODEL" in builtin_details(row)


def test_no_row():
    assert list(builtin_lines([])) == ["No built-in model is so."]
