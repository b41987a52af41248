"""The served side: vLLM's configuration objects, the real scheduler and its requests.

No engine, worker or checkpoint is involved: the scheduler only needs to know lengths and limits.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.simulate.workload import Job
    from vllm.config import VllmConfig
    from vllm.v1.request import Request

    from vllm_tt.scheduler.lanes import TTLaneCoordinator
    from vllm_tt.scheduler.phase import TTScheduler

__all__ = ["PoolTooSmall", "Server", "lanes_of", "make_requests", "make_scheduler"]


class PoolTooSmall(ConfigError):
    """A pool of {pool} tokens cannot hold one request of --max-model-len {longest}.
    Use --kv-tokens {longest} or more, or a smaller --max-model-len.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The settings of ``vllm serve`` that scheduling depends on, under the same names."""

    lanes: int = 1
    """Slots, step budget and KV cache below are those of each."""
    rebinding: bool = True
    """Requests that have not started may change lanes; only what that is worth needs it off."""
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    block_size: int = 64
    kv_tokens: int = 131_072
    """Tokens that the KV cache holds."""
    chunked_prefill: bool = True
    """Without it a step takes the longest prompt, whatever the budget says."""
    prefix_caching: bool = False
    async_scheduling: bool = False
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    tt: dict[str, Any] = field(default_factory=dict)
    """The options of ``additional_config["tt"]``."""

    @property
    def pages(self) -> int:
        """Pages for requests; vLLM keeps one more, the null page."""
        return -(-self.kv_tokens // self.block_size)

    @property
    def budget(self) -> int:
        """Tokens of a prefill step."""
        asked = self.max_num_batched_tokens
        return asked if self.chunked_prefill else max(asked, self.max_model_len)


def make_scheduler(server: Server) -> TTScheduler | TTLaneCoordinator:
    """The scheduler that serves these settings."""
    import torch
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from vllm_tt.scheduler.lanes import TTLaneCoordinator
    from vllm_tt.scheduler.phase import TTScheduler

    if server.pages * server.block_size < server.max_model_len:
        raise PoolTooSmall(pool=server.pages * server.block_size, longest=server.max_model_len)
    config = _vllm_config(server)
    init_none_hash(get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo))
    spec = FullAttentionSpec(block_size=server.block_size, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
    pool = KVCacheConfig(
        num_blocks=server.pages + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    arguments = (config, pool, StructuredOutputManager(config), server.block_size)
    if server.lanes == 1:
        return TTScheduler(*arguments)
    coordinator = TTLaneCoordinator(*arguments)
    if not server.rebinding:
        coordinator.rebind = lambda: None  # type: ignore[method-assign]
    return coordinator


def lanes_of(scheduler: TTScheduler | TTLaneCoordinator) -> tuple[TTScheduler, ...]:
    """The scheduler of each lane."""
    return getattr(scheduler, "lanes", None) or (scheduler,)


def _vllm_config(server: Server) -> VllmConfig:
    from vllm.config import CacheConfig, DeviceConfig, SchedulerConfig, VllmConfig

    from vllm_tt.platform.settled import keep

    cache = CacheConfig(block_size=server.block_size, enable_prefix_caching=server.prefix_caching)
    cache.num_gpu_blocks = server.pages + 1
    config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_model_len=server.max_model_len,
            is_encoder_decoder=False,
            max_num_seqs=server.max_num_seqs,
            max_num_batched_tokens=server.budget,
            enable_chunked_prefill=server.chunked_prefill,
            async_scheduling=server.async_scheduling,
            policy=server.scheduling_policy,
        ),
        cache_config=cache,
        device_config=DeviceConfig(device="cpu"),
        additional_config={"tt": server.tt},
    )
    keep(config, lanes=server.lanes, rows_per_lane=server.max_num_seqs)
    # Only now: the platform would look for an adapter of this model.
    config.model_config = _model_config(server.max_model_len)
    return config


@cache
def _model_config(max_model_len: int) -> Any:
    """A decoder that exists in name only."""
    import torch
    from vllm import ModelRegistry
    from vllm.config import ModelConfig

    class SimulatedForCausalLM(torch.nn.Module):
        def embed_input_ids(self, input_ids: Any) -> Any: ...

        def forward(self, input_ids: Any, positions: Any) -> Any: ...

        def compute_logits(self, hidden_states: Any) -> Any: ...

    ModelRegistry.register_model(SimulatedForCausalLM.__name__, SimulatedForCausalLM)
    described = {
        "architectures": [SimulatedForCausalLM.__name__],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 32_000,
        "max_position_embeddings": max_model_len,
        "dtype": "bfloat16",
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(described))
        return ModelConfig(model=folder, skip_tokenizer_init=True, max_model_len=max_model_len)


def make_requests(server: Server, scheduler: TTScheduler | TTLaneCoordinator) -> Callable[[int, Job], Request]:
    """A function that makes the request of a job, given its number."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    hasher = None
    if server.prefix_caching:
        algorithm = lanes_of(scheduler)[0].cache_config.prefix_caching_hash_algo
        hasher = get_request_block_hasher(server.block_size, get_hash_fn_by_name(algorithm))

    @cache
    def sampling(output_tokens: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)

    def make(number: int, job: Job) -> Request:
        # Even tokens belong to a group, odd ones to one job: only what is shared has equal hashes.
        shared = [2 * job.prefix_group] * job.prefix_tokens if job.prefix_group is not None else []
        return Request(
            request_id=job.name,
            prompt_token_ids=shared + [2 * number + 1] * (job.prompt_tokens - len(shared)),
            sampling_params=sampling(job.output_tokens),
            pooling_params=None,
            arrival_time=job.arrival_ns / 1e9,
            priority=job.priority,
            block_hasher=hasher,
        )

    return make
