"""The generators built into tt-metal: every architecture, its classes and what each takes, in one table."""

from __future__ import annotations

from vllm_tt import env
from vllm_tt.mesh import BLACKHOLE, WORMHOLE
from vllm_tt.models.builtin import Builtin, Capacity, Feature, Variant

__all__ = ["BUILTINS", "VARIANTS"]

_TRANSFORMERS = "models.tt_transformers.tt.generator_vllm"
_LLAMA_GALAXY = "models.demos.llama3_70b_galaxy.tt.generator_vllm"
_TESTS = "models.vllm_test_utils"
_GALAXY_OPTIONS = (
    "--data-parallel-size 4 --max-num-seqs 8 --async-scheduling --additional-config.tt.sample_on_device_mode all "
    "--additional-config.tt.dispatch_core_axis col --additional-config.tt.fabric_config FABRIC_1D_RING "
    "--additional-config.tt.worker_l1_size 1344544 --additional-config.tt.trace_region_size 220000000"
)
_GPT_OSS_OPTIONS = (
    "--data-parallel-size 4 --max-num-seqs 32 --async-scheduling --additional-config.tt.sample_on_device_mode all "
    "--additional-config.tt.fabric_config FABRIC_2D_TORUS_XY"
)
_LENGTHS = "--max-model-len should be a power of two: warm-up takes those"
_WHOLE_PROMPTS = "A prompt is taken at once: neither prefix caching nor chunked prefill"
_ONE_IMAGE = "One image a prompt"
_IMAGES = frozenset({Feature.IMAGES})


def _text(name: str, *exceptions: Capacity) -> Variant:
    """A text model of tt_transformers."""
    return Variant(main_class=f"{_TRANSFORMERS}:{name}", capacities=(Capacity(), *exceptions), notes=(_LENGTHS,))


_GEMMA4 = Variant(
    main_class="models.demos.gemma4.tt.generator_vllm:Gemma4ForCausalLM",
    notes=("Text alone is served", "GEMMA4_HYBRID_KV_CACHE_GROUPS makes it take several KV cache groups"),
)


def _one(arch: str, models: str, variant: Variant, *, text_only: bool = False) -> Builtin:
    return Builtin(arch=arch, models=models, variants={"": variant}, text_only=text_only)


def _test(arch: str, path: str) -> Builtin:
    variant = Variant(main_class=f"{_TESTS}.{path}", notes=("With the option tt.register_test_models alone",))
    return Builtin(arch=arch, models="a test model", variants={"": variant}, test_model=True)


BUILTINS: tuple[Builtin, ...] = (
    Builtin(
        arch="TTLlamaForCausalLM",
        models="Llama text models",
        selector=env.LLAMA_TEXT_VER,
        variants={
            "tt_transformers": _text(
                "LlamaForCausalLM", Capacity(tokens=32_768, models="Llama-3.1-8B", meshes=("N150",))
            ),
            "llama3_70b_galaxy": Variant(
                main_class=f"{_LLAMA_GALAXY}:LlamaForCausalLM",
                meshes=("TG",),
                lanes=True,
                options={"TG": _GALAXY_OPTIONS},
            ),
            "llama2_70b": Variant(
                main_class="models.demos.t3000.llama2_70b.tt.generator_vllm:TtLlamaForCausalLM", meshes=("T3K",)
            ),
        },
    ),
    _one(
        "TTMllamaForConditionalGeneration",
        "Llama 3.2 Vision",
        Variant(
            main_class=f"{_TRANSFORMERS}:MllamaForConditionalGeneration",
            capacities=(Capacity(), Capacity(tokens=65_536, models="90B", meshes=("T3K",))),
            needs=_IMAGES | {Feature.CROSS_ATTENTION},
            notes=("vLLM has not had a processor of its images since 0.10.2",),
        ),
    ),
    _one(
        "TTQwen2ForCausalLM",
        "Qwen 2 and 2.5 text models",
        _text("QwenForCausalLM", Capacity(tokens=65_536, models="Qwen2.5-14B", meshes=("N300",))),
    ),
    Builtin(
        arch="TTQwen3ForCausalLM",
        models="Qwen 3 text models",
        selector=env.QWEN3_TEXT_VER,
        variants={
            "tt_transformers": _text("QwenForCausalLM", Capacity(tokens=32_768, models="Qwen3-8B", meshes=("N150",))),
            "qwen3_32b_galaxy": Variant(main_class=f"{_LLAMA_GALAXY}:QwenForCausalLM", meshes=("TG",), lanes=True),
        },
    ),
    Builtin(
        arch="TTQwen3_5ForConditionalGeneration",
        models="Qwen 3.5 and 3.6",
        selector=env.QWEN35_TEXT_VER,
        variants={
            "qwen36_blackhole": Variant(
                main_class="models.demos.blackhole.qwen36.tt.qwen36_vllm:Qwen36ForCausalLM",
                meshes=BLACKHOLE,
                capacities=(Capacity(tokens=None),),
                needs=_IMAGES,
                max_images=1,
                notes=("QWEN36_MAX_TOKENS_ALL_USERS sets the tokens for all users", _ONE_IMAGE),
            )
        },
    ),
    _one(
        "TTQwen2_5_VLForConditionalGeneration",
        "Qwen 2.5 VL",
        Variant(
            main_class="models.demos.qwen25_vl.tt.generator_vllm:Qwen2_5_VLForConditionalGeneration",
            capacities=(
                Capacity(),
                Capacity(tokens=393_216, models="3B and 7B"),
                Capacity(tokens=262_144, models="32B"),
                Capacity(tokens=65_536, models="72B", meshes=("T3K",)),
            ),
            needs=_IMAGES,
            max_images=1,
            notes=(_ONE_IMAGE, _WHOLE_PROMPTS),
        ),
    ),
    _one(
        "TTQwen3VLForConditionalGeneration",
        "Qwen 3 VL",
        Variant(
            main_class="models.demos.qwen3_vl.tt.generator_vllm:Qwen3VLForConditionalGeneration",
            needs=_IMAGES,
            max_images=1,
            notes=(_ONE_IMAGE, _WHOLE_PROMPTS),
        ),
    ),
    _one(
        "TTMistralForCausalLM",
        "Mistral text models",
        _text("MistralForCausalLM", Capacity(tokens=65_536, models="Mistral-7B", meshes=("N150",))),
    ),
    _one(
        "TTMistral3ForConditionalGeneration",
        "Mistral Small 3.1",
        Variant(
            main_class=f"{_TRANSFORMERS}:Mistral3ForConditionalGeneration",
            needs=_IMAGES,
            image_names=("images", "image_sizes"),
        ),
    ),
    _one(
        "TTGemma3ForConditionalGeneration",
        "Gemma 3",
        Variant(
            main_class=f"{_TRANSFORMERS}:Gemma3ForConditionalGeneration",
            capacities=(Capacity(), Capacity(tokens=65_536, models="4B", meshes=("N150", "N300"))),
            needs=_IMAGES | {Feature.KV_GROUPS},
            image_names=("num_patches",),
        ),
    ),
    _one("TTGemma4ForCausalLM", "Gemma 4", _GEMMA4, text_only=True),
    _one("TTGemma4ForConditionalGeneration", "Gemma 4", _GEMMA4, text_only=True),
    _one("TTGemma4UnifiedForConditionalGeneration", "Gemma 4", _GEMMA4, text_only=True),
    _one(
        "TTDeepseekV3ForCausalLM",
        "DeepSeek V3 and R1",
        Variant(
            main_class="models.demos.deepseek_v3.tt.generator_vllm:DeepseekV3ForCausalLM",
            meshes=WORMHOLE,
            capacities=(Capacity(tokens=None),),
            variables=(env.DEEPSEEK_V3_HF_MODEL,),
            notes=("The model's name or path must contain DeepSeek-R1-0528", _WHOLE_PROMPTS),
        ),
    ),
    _one(
        "TTGptOssForCausalLM",
        "GPT-OSS",
        Variant(
            main_class=f"{_TRANSFORMERS}:GptOssForCausalLM",
            lanes=True,
            options={"BH-Galaxy": _GPT_OSS_OPTIONS},
            notes=("tt.optimizations must be left out",),
        ),
    ),
    _test("TTDummyT3000MultiProcessModel", "t3000_multiproc_test.test_model:DummyT3000MultiProcessModel"),
    _test("TTDummyNoOpModel", "no_op_test.test_model:DummyNoOpModel"),
    _test("TTDummyDualGlxModel", "dual_glx_ccl_test.test_model:DummyDualGlxModel"),
)
"""Every built-in generator, in the order of the documentation."""

VARIANTS: dict[str, Variant] = {
    variant.main_class: variant for builtin in BUILTINS for variant in builtin.variants.values()
}
"""Every class by its path, for bundles and overrides that name one; several architectures may share it."""
