"""The adapter contract: what a model's class declares and the calls that the worker makes on it.

The names, arguments and defaults are those that tt-metal's vLLM generators implement. One table,
`CALLS`, states every call; the worker's tests and the bundle validator both read it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CALLS",
    "CONTRACT_V1",
    "DEVICE_PENALTIES",
    "DEVICE_SAMPLING",
    "LEGACY_SAMPLING",
    "MULTIMODAL",
    "IMAGE_FIELDS",
    "REQUEST_ROPE",
    "ROW_LOGITS",
    "SEVERAL_GROUPS",
    "Adapter",
    "Call",
    "Capabilities",
    "DeviceSamplingParams",
]

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What an adapter class declares in its ``model_capabilities`` dict; absent means off.

    Keys of the contract that this table does not list are ignored.
    """

    supports_prefix_caching: bool = False
    """Prefill honours a ``start_pos`` above zero for pages that other requests wrote."""
    supports_chunked_prefill: bool = False
    """Prefill may be called with consecutive chunks of one prompt."""
    supports_async_decode: bool = False
    """Decode can be submitted and read back separately."""
    supports_sample_on_device: bool = False
    """Prefill and decode accept ``sampling_params`` and return tokens."""
    supports_device_penalties: bool = True
    """Device sampling applies the three penalties."""
    supports_lanes: bool = False
    """One instance serves several lanes: ``tt_data_parallel`` of them, slots and page ids lane by lane."""
    supports_device_seeds: bool = False
    """A seeded draw on the device depends on the logits, the seed and the token's position alone: not on the slot,
    the batch, earlier draws, or on whether prefill or decode computes it."""
    supports_row_logits: bool = False
    """Device sampling accepts ``logits_rows`` and returns those rows' logits beside all rows' tokens."""
    max_device_top_k: int | None = None
    """Largest ``top_k`` that the device samples with; None means no limit is declared."""
    max_device_logprobs: int | None = None
    """Most logprobs a token that the device returns; 0 is the chosen token's alone, None means none are declared."""
    max_images_per_prompt: int | None = None
    """Of an architecture that takes images: how many a prompt may have; 0 for an adapter that serves its text alone."""

    @classmethod
    def from_mapping(cls, declared: Mapping[str, Any] | None, owner: str) -> Capabilities:
        """The capabilities in ``declared``; a value of the wrong type counts as absent, with a warning."""
        if declared is None:
            return cls()
        if not isinstance(declared, dict):
            log.warning("%s: model_capabilities must be a dict, got %s; all are off", owner, type(declared).__name__)
            return cls()
        known: dict[str, Any] = {}
        for name, expected in cls.types().items():
            if name not in declared:
                continue
            value = declared[name]
            if type(value) is expected:
                known[name] = value
            else:
                log.warning("%s: %s must be %s, got %r; ignored", owner, name, expected.__name__, value)
        return cls(**known)

    @classmethod
    def types(cls) -> dict[str, type]:
        """The type of each key: bool, or int for a limit."""
        return {one.name: int if one.name.startswith("max_") else bool for one in fields(cls)}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSamplingParams:
    """``sampling_params`` of a device-sampled call: a list a field, an item a row.

    Rows are those of the call: n in a prefill, all B slots in a decode. A row that takes the likeliest token has
    temperature 0 and top_k 1, and so has an idle slot.
    """

    temperature: list[float]
    top_k: list[int]
    """At least 1; the vocabulary's size for all tokens."""
    top_p: list[float]
    presence_penalty: list[float]
    frequency_penalty: list[float]
    repetition_penalty: list[float]
    """1 for none."""
    seed: list[int | None]
    """Unsigned 32-bit; None for a row whose draws need not be repeatable."""
    enable_log_probs: list[bool]
    num_logprobs: list[int]
    """How many of the likeliest tokens' logprobs, where ``enable_log_probs``; the chosen token's comes with any."""

    @classmethod
    def greedy(cls, rows: int) -> DeviceSamplingParams:
        """Every row takes the likeliest token."""
        return cls(
            temperature=[0.0] * rows,
            top_k=[1] * rows,
            top_p=[1.0] * rows,
            presence_penalty=[0.0] * rows,
            frequency_penalty=[0.0] * rows,
            repetition_penalty=[1.0] * rows,
            seed=[None] * rows,
            enable_log_probs=[False] * rows,
            num_logprobs=[0] * rows,
        )


@runtime_checkable
class Adapter(Protocol):
    """A model that the worker can serve.

    Shapes: n is the number of rows in a prefill, B the number of slots, W the page table's width
    (pages of the longest request), V the vocabulary. Page ids index the KV cache's first
    dimension; page 0 is the null page, which no request owns and any padded write may touch.

    With L lanes slots follow one another lane by lane, B / L each, and every lane has a cache of its own: page ids
    count from 0 in each.
    """

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int,
        optimizations: str | None,
    ) -> Adapter:
        """Load the weights onto the mesh. The first three are passed by position.

        max_batch_size: all B slots; tt_data_parallel: the lanes, 1 unless ``supports_lanes`` is declared.
        """

    def allocate_kv_cache(self, shape: tuple[int, int, int, int], dtype: Any, num_layers: int) -> Any:
        """One cache for all layers: shape is (pages of a lane, KV heads per chip, page size, head size).

        ``dtype`` is a torch dtype. The result comes back as ``kv_cache`` in every call.

        A class may instead define ``allocate_kv_cache_per_layer(specs)``, which gets (shape, dtype, buffer index) for
        each layer in the order of ``get_kv_cache_spec``; one whose layers cache differently must. vLLM then groups
        the layers, and gives each group pages of its own in one pool: layers with the same buffer index belong to
        different groups and may share memory. Each call gets ``page_tables_per_layer``, an int32 table like
        ``page_table`` for each layer, the same tensor for layers of a group; ``page_table`` is the one of full
        attention. Behind a sliding window a table has null pages, or pages that other requests own by now.
        """

    def prefill_forward(
        self,
        *,
        tokens: Any,
        page_table: Any,
        kv_cache: Any,
        enable_trace: bool,
        prompt_lens: Any,
        start_pos: Any,
        empty_slots: list[int],
    ) -> Any:
        """Compute rows ``tokens[i, start_pos[i]:prompt_lens[i]]``; returns logits [n, 1, V] or [n, S, V].

        With ``sampling_params`` (`DeviceSamplingParams` of the n rows) it returns tokens, [n] or [n, 1], in the forms
        that `decode_forward` lists. Penalties then count ``tokens[i, :prompt_lens[i]]`` as the prompt.

        With prefix caching a row may read pages that an earlier row of the same call writes: compute the
        rows in order, or write a layer's keys and values of all rows before any row attends to them.

        tokens: torch int32 [n, longest prompt], each row from the prompt's first token, zero padded;
        page_table: torch int32 [n, W] in row order; prompt_lens, start_pos: numpy int64 [n];
        empty_slots: the device slot of each row. State that is kept by slot begins anew where start_pos is 0.

        Images come as vLLM's processor of the architecture prepared them: ``pixel_values`` and ``image_grid_thw`` are
        lists with an item a row, None or a list with an item for each image that begins before the row's
        ``prompt_lens``. The pixels of an image before ``start_pos`` are None. No chunk begins or ends within an image.

        With request-specific rotary state it returns ``(output, rope_deltas)``: for each row how far the rotary
        position of a token at ``prompt_lens`` is ahead of its position (negative where images take up fewer).
        """

    def decode_forward(
        self,
        *,
        tokens: Any,
        page_table: Any,
        kv_cache: Any,
        start_pos: Any,
        enable_trace: bool,
        read_from_device: bool,
    ) -> Any:
        """One token for every slot; returns host logits [B, 1, V] or a device handle.

        tokens: torch int32 [B, 1]; start_pos: torch int32 [B], the position of that token, -1 for
        a slot that is not decoding; page_table: torch int32 [B, W]. Indexed by slot.

        ``rope_deltas_all_users``: B ints, what prefills returned for the requests in the slots; 0 elsewhere.

        With ``sampling_params`` (`DeviceSamplingParams` of all B slots) it returns one of

        - tokens, int [B] or [B, 1];
        - ``(tokens, logprobs)`` where a row has ``enable_log_probs``: the chosen tokens' logprobs, float [B] or
          [B, 1], or ``(logprobs, indices)`` of the K likeliest tokens, [B, K] each, in falling order, where K is
          ``max_device_logprobs``;
        - ``(tokens, logprobs or None, logits)`` where ``logits_rows`` is sent, a list of slots (in a prefill, of
          rows): the logits of those rows, in that order, [r, V]. Their tokens are not used.

        ``prompt_tokens`` and ``output_tokens``, int32 [B, longest], are padded with -1 and sent while a row has
        penalties; they hold what the host knows and are to be read when sampling state is reset. From then on the
        device adds the tokens that it samples.

        Between reloads the device goes on with the tokens it sampled and positions one further: ``tokens`` and
        ``start_pos`` of other calls may be out of date. A slot whose request has ended may go on so, with null pages,
        until inputs are loaded again; one whose request pauses is taken out at once. Adapters with
        ``decode_input_update_contract = 1`` are told with every call what to load again: ``reload_inputs`` (tokens,
        positions and page table), ``reload_page_table`` (the page table alone; never with ``reload_inputs``),
        ``reload_sampling_params``, and ``reset_sampling_state`` (penalty counts and random state; never without
        ``reload_sampling_params``). Others
        get ``reset_batch`` in device-sampled calls: true means all of it.
        """

    # ``release_slots(slots)``, where it is defined, is told the slots whose requests finished or were preempted, in
    # the order of steps and before another request's prefill comes to one of them.


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call that the worker makes on an adapter's class or instance."""

    method: str
    always: tuple[str, ...]
    """Keyword arguments of every call."""
    sometimes: Mapping[str, str]
    """Further keyword arguments, each with the condition under which it is sent."""
    positional: int = 0
    """How many of ``always``, from the first, are passed by position."""
    on_class: bool = False
    """A class or static method, called before there is an instance."""
    needed: str = ""
    """When the method must exist; empty means it is optional."""


REQUEST_ROPE = "models with request-specific rotary state"
MULTIMODAL = "multimodal models"
IMAGE_FIELDS = MULTIMODAL + ", adapters that name it"
SEVERAL_GROUPS = "several KV cache groups"
DEVICE_SAMPLING = "device sampling"
DEVICE_PENALTIES = "device penalties"
ROW_LOGITS = "device sampling with supports_row_logits, when some rows are sampled on the host"
CONTRACT_V1 = "decode_input_update_contract = 1"
LEGACY_SAMPLING = DEVICE_SAMPLING + ", adapters without " + CONTRACT_V1
"""When a keyword is sent that is not sent always."""

CALLS: tuple[Call, ...] = (
    Call(
        method="get_max_tokens_all_users",
        always=("model_name", "num_devices", "tt_data_parallel", "max_model_len", "max_num_seqs"),
        sometimes={},
        on_class=True,
    ),
    Call(method="get_kv_cache_spec", always=("vllm_config",), sometimes={}, positional=1, on_class=True),
    Call(
        method="initialize_vllm_model",
        always=("hf_config", "mesh_device", "max_batch_size", "max_seq_len", "tt_data_parallel", "optimizations"),
        sometimes={},
        positional=3,
        on_class=True,
        needed="always",
    ),
    Call(method="allocate_kv_cache_per_layer", always=("specs",), sometimes={}, positional=1),
    Call(
        method="allocate_kv_cache",
        always=("shape", "dtype", "num_layers"),
        sometimes={},
        positional=3,
        needed="without allocate_kv_cache_per_layer",
    ),
    Call(
        method="warmup_model_prefill",
        always=("enable_trace", "kv_cache", "can_sample_on_device"),
        sometimes={},
        needed="enable_model_warmup",
    ),
    Call(
        method="warmup_model_decode",
        always=("enable_trace", "kv_cache", "can_sample_on_device", "max_batch_size", "num_blocks"),
        sometimes={},
        needed="enable_model_warmup",
    ),
    Call(
        method="prefill_forward",
        always=("tokens", "page_table", "kv_cache", "enable_trace", "prompt_lens", "start_pos", "empty_slots"),
        sometimes={
            "sampling_params": DEVICE_SAMPLING,
            "logits_rows": ROW_LOGITS,
            "page_tables_per_layer": SEVERAL_GROUPS,
            "pixel_values": MULTIMODAL,
            "image_grid_thw": MULTIMODAL,
            "image_sizes": IMAGE_FIELDS,
            "num_patches": IMAGE_FIELDS,
            "images": IMAGE_FIELDS,
        },
        needed="always",
    ),
    Call(
        method="decode_forward",
        always=("tokens", "page_table", "kv_cache", "start_pos", "enable_trace", "read_from_device"),
        sometimes={
            "sampling_params": DEVICE_SAMPLING,
            "reset_batch": LEGACY_SAMPLING,
            "reload_inputs": CONTRACT_V1,
            "reload_page_table": CONTRACT_V1,
            "reload_sampling_params": CONTRACT_V1,
            "reset_sampling_state": CONTRACT_V1,
            "prompt_tokens": DEVICE_PENALTIES,
            "output_tokens": DEVICE_PENALTIES,
            "logits_rows": ROW_LOGITS,
            "page_tables_per_layer": SEVERAL_GROUPS,
            "rope_deltas_all_users": REQUEST_ROPE,
        },
        needed="always",
    ),
    Call(
        method="read_decode_output",
        always=("out", "async_read"),
        sometimes={},
        positional=1,
        needed="supports_async_decode, unless decode returns host tensors",
    ),
    Call(
        method="process_decode_output_host",
        always=("out", "is_tokens"),
        sometimes={},
        positional=1,
        needed="decode returns a device handle",
    ),
    Call(method="release_slots", always=("slots",), sometimes={}, positional=1),
)
"""Every call of the worker on an adapter, in the order of a server's life."""
