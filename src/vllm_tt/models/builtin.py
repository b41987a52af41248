"""The generators built into tt-metal, as a table: registered name, class path, and what selects it.

Class paths are those of tt-metal's ``models`` tree, which a tt-metal checkout puts on PYTHONPATH.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_tt.env import Variable

__all__ = ["BUILTINS", "SERVE_LANES", "Builtin", "SelectorError"]

_TRANSFORMERS = "models.tt_transformers.tt.generator_vllm"
_LLAMA_GALAXY = "models.demos.llama3_70b_galaxy.tt.generator_vllm"
_GPT_OSS = f"{_TRANSFORMERS}:GptOssForCausalLM"
_LANES = "folds data parallelism into lanes"

SERVE_LANES = frozenset({f"{_LLAMA_GALAXY}:LlamaForCausalLM", f"{_LLAMA_GALAXY}:QwenForCausalLM", _GPT_OSS})
"""Classes of tt-metal's that serve several lanes with one call, though they do not declare ``supports_lanes``."""


class SelectorError(ConfigError):
    """{variable}={found!r} selects no generator for {arch}. Valid values: {valid}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Builtin:
    """One registered architecture and the classes that can serve it."""

    arch: str
    """The registered name, prefixed."""
    classes: Mapping[str, str]
    """Class path by value of the selector, the default first."""
    selector: Variable[str | None] | None = None
    notes: Mapping[str, str]
    """What an operator should know, by value of the selector."""
    text_only: bool = False
    """Text alone is served, whatever vLLM's own class of the architecture takes: the plain name is replaced too."""
    test_model: bool = False
    """Served only with the option ``register_test_models``."""

    @property
    def default(self) -> str:
        return next(iter(self.classes))

    def choose(self, environ: Mapping[str, str] | None = None) -> str:
        """The selector's value in the environment; raises SelectorError for one that is not in the table."""
        value = self.selector.get(environ) if self.selector else None
        if value is None:
            return self.default
        if value not in self.classes:
            variable = self.selector.name if self.selector else ""
            raise SelectorError(variable=variable, found=value, arch=self.arch, valid=", ".join(self.classes))
        return value


def _one(arch: str, path: str, note: str = "", *, text_only: bool = False) -> Builtin:
    return Builtin(arch=arch, classes={"": path}, notes={"": note}, text_only=text_only)


def _test(arch: str, path: str) -> Builtin:
    return Builtin(arch=arch, classes={"": path}, notes={"": "test model"}, test_model=True)


_GEMMA4 = "models.demos.gemma4.tt.generator_vllm:Gemma4ForCausalLM"
_TESTS = "models.vllm_test_utils"

BUILTINS: tuple[Builtin, ...] = (
    Builtin(
        arch="TTLlamaForCausalLM",
        selector=env.LLAMA_TEXT_VER,
        classes={
            "tt_transformers": f"{_TRANSFORMERS}:LlamaForCausalLM",
            "llama3_70b_galaxy": f"{_LLAMA_GALAXY}:LlamaForCausalLM",
            "llama2_70b": "models.demos.t3000.llama2_70b.tt.generator_vllm:TtLlamaForCausalLM",
        },
        notes={"llama3_70b_galaxy": _LANES},
    ),
    _one("TTMllamaForConditionalGeneration", f"{_TRANSFORMERS}:MllamaForConditionalGeneration"),
    _one("TTQwen2ForCausalLM", f"{_TRANSFORMERS}:QwenForCausalLM"),
    Builtin(
        arch="TTQwen3ForCausalLM",
        selector=env.QWEN3_TEXT_VER,
        classes={
            "tt_transformers": f"{_TRANSFORMERS}:QwenForCausalLM",
            "qwen3_32b_galaxy": f"{_LLAMA_GALAXY}:QwenForCausalLM",
        },
        notes={"qwen3_32b_galaxy": _LANES},
    ),
    Builtin(
        arch="TTQwen3_5ForConditionalGeneration",
        selector=env.QWEN35_TEXT_VER,
        classes={"qwen36_blackhole": "models.demos.blackhole.qwen36.tt.qwen36_vllm:Qwen36ForCausalLM"},
        notes={"qwen36_blackhole": "Qwen 3.5 and 3.6, Blackhole"},
    ),
    _one(
        "TTQwen2_5_VLForConditionalGeneration",
        "models.demos.qwen25_vl.tt.generator_vllm:Qwen2_5_VLForConditionalGeneration",
    ),
    _one(
        "TTQwen3VLForConditionalGeneration", "models.demos.qwen3_vl.tt.generator_vllm:Qwen3VLForConditionalGeneration"
    ),
    _one("TTMistralForCausalLM", f"{_TRANSFORMERS}:MistralForCausalLM"),
    _one("TTMistral3ForConditionalGeneration", f"{_TRANSFORMERS}:Mistral3ForConditionalGeneration"),
    _one("TTGemma3ForConditionalGeneration", f"{_TRANSFORMERS}:Gemma3ForConditionalGeneration"),
    _one("TTGemma4ForCausalLM", _GEMMA4, "text only", text_only=True),
    _one("TTGemma4ForConditionalGeneration", _GEMMA4, "text only", text_only=True),
    _one("TTGemma4UnifiedForConditionalGeneration", _GEMMA4, "text only", text_only=True),
    _one("TTDeepseekV3ForCausalLM", "models.demos.deepseek_v3.tt.generator_vllm:DeepseekV3ForCausalLM"),
    _one("TTGptOssForCausalLM", _GPT_OSS, _LANES),
    _test("TTDummyT3000MultiProcessModel", f"{_TESTS}.t3000_multiproc_test.test_model:DummyT3000MultiProcessModel"),
    _test("TTDummyNoOpModel", f"{_TESTS}.no_op_test.test_model:DummyNoOpModel"),
    _test("TTDummyDualGlxModel", f"{_TESTS}.dual_glx_ccl_test.test_model:DummyDualGlxModel"),
)
"""Every built-in generator, in the order of the documentation."""
