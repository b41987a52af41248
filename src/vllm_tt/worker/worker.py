"""vLLM's worker: owns the mesh, the model, the KV cache and the runner."""

from __future__ import annotations

import multiprocessing
import sys
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from vllm_tt.batch.images import image_names
from vllm_tt.batch.rows import Rows
from vllm_tt.config import TTConfig
from vllm_tt.contract import Capabilities
from vllm_tt.log import get_logger
from vllm_tt.models.registry import select
from vllm_tt.platform.compat import is_engine, outlive_repeated_signals
from vllm_tt.platform.ending import engine_record
from vllm_tt.platform.lanes import check_split, lane_shape
from vllm_tt.platform.multimodal import takes_images
from vllm_tt.platform.policies import compact_json
from vllm_tt.platform.ranks import bind
from vllm_tt.sampling.host import HostSampler
from vllm_tt.sampling.policy import DeviceLimits
from vllm_tt.sampling.processors import has_custom_processors
from vllm_tt.worker.device import OpenMesh, open_mesh
from vllm_tt.worker.forward import Forward, Traits, complete
from vllm_tt.worker.kv_cache import KVPlan, layer_specs
from vllm_tt.worker.kv_groups import KVGroups
from vllm_tt.worker.model_runner import ModelRunner, RunnerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.config import VllmConfig
    from vllm.tasks import SupportedTask
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

    from vllm_tt.worker.async_steps import StepOutput

__all__ = ["TTWorker"]

log = get_logger(__name__)

T = TypeVar("T")


class TTWorker(WorkerBase):
    """Serves one model on one mesh, in vLLM's engine process.

    Whatever fails while starting up closes the mesh before it is raised.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        compact_json(self.vllm_config)
        self._config = TTConfig.from_additional_config(self.vllm_config.additional_config)
        self._shape = lane_shape(self.vllm_config)
        self._record = engine_record(self.vllm_config)
        self._devices = bind(self.vllm_config)
        self._mesh: OpenMesh | None = None
        self._kv_plan: KVPlan | None = None
        self._groups: KVGroups | None = None
        self._adapter_class: type | None = None
        self._capabilities = Capabilities()
        self._image_names: tuple[str, ...] = ()
        self._adapter: Any = None
        self._forward: Forward | None = None
        self._runner: ModelRunner | None = None

    def init_device(self) -> None:
        if is_engine(multiprocessing.current_process()):
            outlive_repeated_signals()
        grid = self._devices.grid if self._devices else None
        self._mesh = open_mesh(self._config, tracing=self._config.trace_mode != "none", group=grid)
        self._record.opened()
        self._mesh.after_close(lambda: self._record.closed(sys.exc_info()[1]))
        self._or_close(lambda: check_split(self._shape.lanes, _set(self._mesh).grid))

    def load_model(self, *, load_dummy_weights: bool = False) -> None:  # noqa: ARG002 - vLLM's signature
        """Load the adapter; weights are the adapter's own business, dummy ones included."""
        self._or_close(self._load_model)

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        return self._or_close(lambda: layer_specs(_set(self._adapter_class), self.vllm_config))

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """The order of the adapter's page dimensions is its own; vLLM only needs a name it knows."""
        return ["LBNHC"]

    def determine_available_memory(self) -> int:
        """Bytes that divide back into the planned pages. The engine plans in this same process."""
        plan = _set(self._kv_plan)
        self.cache_config.num_gpu_blocks_override = plan.pages
        return plan.pages * sum(spec.page_size_bytes for spec in self.get_kv_cache_spec().values())

    def update_max_model_len(self, max_model_len: int) -> None:
        self.model_config.max_model_len = max_model_len

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        self._or_close(lambda: self._initialize(kv_cache_config))

    def compile_or_warm_up_model(self) -> CompilationTimes:
        if self._config.enable_model_warmup:
            self._or_close(
                lambda: _set(self._forward).warm_up(
                    rows=self._shape.rows,
                    max_model_len=self.model_config.max_model_len,
                    pages_per_row=_set(self._groups).pages_per_row(self.model_config.max_model_len),
                )
            )
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        return _set(self._runner).execute(scheduler_output)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput | StepOutput:
        return _set(self._runner).sample(grammar_output)

    def check(self) -> dict[str, int]:
        """Raise unless the worker's books agree; returns what is held: requests, rows and pages."""
        return _set(self._runner).check()

    def counters(self) -> dict[str, dict[str, int]]:
        """Steps, fallbacks to host sampling and drains so far, each by reason."""
        return _set(self._runner).counters.snapshot()

    def get_supported_tasks(self) -> tuple[SupportedTask, ...]:
        return ("generate",)

    def get_model(self) -> Any:
        return self._adapter

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        return None

    def execute_dummy_batch(self) -> None:
        """Nothing to keep in step with: ranks are independent."""

    def reset_mm_cache(self) -> None:
        """Images are kept with their requests alone."""

    def reset_encoder_cache(self) -> None:
        """Adapters encode images within the prefill that needs them."""

    def shutdown(self) -> None:
        """Close the mesh, after everything that holds tensors on it is gone."""
        if self._runner is not None and (summary := self._runner.counters.summary()):
            log.info("What ran, by kind and reason: %s", summary)
        self._runner = self._forward = self._adapter = None
        if self._mesh is not None:
            self._mesh.close()
            self._mesh = None

    def _load_model(self) -> None:
        mesh = _set(self._mesh)
        entry = select(self.model_config, test_models=self._config.register_test_models)
        adapter_class = self._adapter_class = entry.load()
        self._capabilities = entry.capabilities()
        self._image_names = entry.variant.image_names if entry.variant else ()
        plan = self._kv_plan = KVPlan.make(adapter_class, self.vllm_config, self._shape, mesh.grid.chips)
        plan.fit_context(self.vllm_config)
        if (lanes := self._shape.lanes) > 1:
            log.info("KV cache of each of %d lanes: %d pages of %d tokens", lanes, plan.pages, plan.block_size)
        log.info("Loading %s (%s) for %s", entry.arch, entry.main_class, self.model_config.model)
        adapter = adapter_class.initialize_vllm_model(
            self.model_config.hf_config,
            mesh.device,
            self._shape.rows,
            max_seq_len=self.model_config.max_model_len,
            tt_data_parallel=self._shape.lanes,
            optimizations=self._config.optimizations,
        )
        self._adapter = complete(adapter, adapter_class, warm_up=self._config.enable_model_warmup)

    def _initialize(self, kv_cache_config: KVCacheConfig) -> None:
        chips_per_lane = _set(self._mesh).grid.chips // self._shape.lanes
        groups = self._groups = KVGroups.of(list(self.get_kv_cache_spec()), kv_cache_config)
        kv_cache = groups.allocate(self._adapter, kv_cache_config.num_blocks, chips_per_lane)
        limits = self._device_limits(chips_per_lane)
        self._forward = Forward(
            self._adapter,
            kv_cache,
            self._config.trace_mode,
            traits=self._traits(groups),
            sample_on_device=limits.decode,
        )
        if limits.decode:
            how = (
                "what to load again" if self._forward.explicit_reloads else "reset_batch alone: it loads all or nothing"
            )
            log.info("Device-sampled decodes of %s are told %s", _set(self._adapter_class).__name__, how)
        widths = groups.widths(self.model_config.max_model_len)
        rows = Rows(self._shape.rows, widths, self.model_config.get_vocab_size(), windowed=groups.windowed)
        options = RunnerOptions(
            limits=limits,
            capacity=groups.pages_per_row(self.model_config.max_model_len) * groups.block_sizes[groups.main],
            run_ahead=bool(self.scheduler_config.async_scheduling),
            traced=self._config.traces_decode,
        )
        sampler = HostSampler(self._config_of_all_rows(), compat=self._config.always_compat_sampling)
        self._runner = ModelRunner(self._forward, rows, sampler, options)

    def _traits(self, groups: KVGroups) -> Traits:
        model = self.model_config
        images = takes_images(model, self._capabilities)
        return Traits(
            groups=groups if len(groups) > 1 else None,
            images=image_names(self._adapter, model.architecture, self._image_names) if images else (),
            request_rope=images and model.uses_mrope,
        )

    def _config_of_all_rows(self) -> VllmConfig:
        """With the rows of all lanes, by which vLLM's logits processors size what they keep."""
        config = copy(self.vllm_config)
        config.scheduler_config = copy(config.scheduler_config)
        config.scheduler_config.max_num_seqs = self._shape.rows
        return config

    def _device_limits(self, chips_per_lane: int) -> DeviceLimits:
        model = self.model_config
        return DeviceLimits.of(
            self._capabilities,
            self._config,
            chips_per_lane=chips_per_lane,
            model_type=model.hf_text_config.model_type,
            logprobs_mode=model.logprobs_mode,
            custom_processors=has_custom_processors(model),
        )

    def _or_close(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except BaseException:
            self.shutdown()
            raise


def _set(value: T | None) -> T:
    """A part that an earlier call of vLLM's start-up order has made."""
    assert value is not None
    return value
