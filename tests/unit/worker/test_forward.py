import pytest
import torch
from fake_adapter import FakeAdapter
from images import feature
from steps import decode, new_request, prefill

from vllm_tt.batch.build import DecodeBuilder, build_prefill
from vllm_tt.batch.rows import Rows
from vllm_tt.worker.forward import Forward, IncompleteAdapter, Traits, complete
from vllm_tt.worker.outputs import UnexpectedOutput
from vllm_tt.worker.reloads import Reload

LOAD = Reload(inputs=True)


@pytest.fixture
def inputs():
    """A prefill of two rows and the decode that follows, in slots 1 and 3 of four."""
    rows = Rows(4, [2], 32)
    first = prefill(
        ("a", 3, 0, 2, False),
        ("b", 1, 0, 3, False),
        new=[new_request("a", [4, 5], [1]), new_request("b", [6, 7, 8], [2])],
    )
    rows.apply(first)
    rows.last_token[[3, 1]] = [6, 9]
    then = decode(("a", 3, 2, 3, False), ("b", 1, 3, 4, False), cached=[("a", None), ("b", None)])
    rows.apply(then)
    return build_prefill(first.plan, rows), DecodeBuilder(rows).build(then.plan)


def test_logits_come_back_in_row_order_and_by_slot(inputs):
    adapter = FakeAdapter()
    forward = Forward(adapter, "kv cache", "all")
    assert forward.prefill(inputs[0]).logits.argmax(-1).tolist() == [6, 9]
    logits = forward.read(forward.decode(inputs[1], LOAD)).logits
    assert logits.shape == (4, 32)
    assert logits[[3, 1]].argmax(-1).tolist() == [7, 10]
    assert all(kwargs["kv_cache"] == "kv cache" for _, kwargs in adapter.calls)


@pytest.mark.parametrize(
    ("mode", "prefill_traced", "decode_traced"),
    [("all", True, True), ("decode_only", False, True), ("none", False, False)],
)
def test_the_trace_mode_reaches_each_call(inputs, mode, prefill_traced, decode_traced):
    adapter = FakeAdapter()
    forward = Forward(adapter, "kv cache", mode)
    forward.prefill(inputs[0])
    forward.decode(inputs[1], LOAD)
    assert adapter.called("prefill_forward")[0]["enable_trace"] is prefill_traced
    assert adapter.called("decode_forward")[0]["enable_trace"] is decode_traced


@pytest.mark.parametrize(
    ("mode", "phases"),
    [
        ("all", [(False, False), (True, True)]),
        ("decode_only", [(False, False), (False, True)]),
        ("none", [(False, False)]),
    ],
)
def test_warm_up_compiles_untraced_and_then_captures(mode, phases):
    adapter = FakeAdapter()
    Forward(adapter, "kv cache", mode).warm_up(rows=4, max_model_len=128, pages_per_row=2)
    prefills, decodes = adapter.called("warmup_model_prefill"), adapter.called("warmup_model_decode")
    assert [(p["enable_trace"], d["enable_trace"]) for p, d in zip(prefills, decodes, strict=True)] == phases
    assert all((d["max_batch_size"], d["num_blocks"]) == (4, 2) for d in decodes)


def test_a_contract_v1_adapter_is_told_to_reload_its_inputs(inputs):
    class Explicit(FakeAdapter):
        decode_input_update_contract = 1

    adapter = Explicit()
    Forward(adapter, "kv cache", "all").decode(inputs[1], LOAD)
    (call,) = adapter.called("decode_forward")
    commands = ("reload_inputs", "reload_page_table", "reload_sampling_params", "reset_sampling_state")
    assert [call[name] for name in commands] == [True, False, False, False]


@pytest.mark.parametrize(
    ("out", "found"),
    [
        (torch.zeros(2, 32), "a float32 tensor of shape [2, 32]"),
        (torch.zeros(3, 1, 32), "a float32 tensor of shape [3, 1, 32]"),
        ((torch.zeros(2, 1, 32), None), "(a float32 tensor of shape [2, 1, 32], None)"),
        (None, "None"),
    ],
)
def test_output_of_another_form_names_the_method_and_the_form(inputs, out, found):
    class Odd(FakeAdapter):
        def prefill_forward(self, **kwargs):
            return out

    with pytest.raises(UnexpectedOutput) as error:
        Forward(Odd(), "kv cache", "all").prefill(inputs[0])
    assert str(error.value) == (
        "Odd.prefill_forward() must return host logits of 2 rows, [2, 1, vocabulary] or [2, tokens, vocabulary]; "
        f"got {found}."
    )


def test_an_adapter_need_not_switch_gradients_off(inputs):
    weight = torch.nn.Parameter(torch.ones(32))

    class Trained(FakeAdapter):
        def _logits(self, rows):
            return super()._logits(rows) * weight

        def warmup_model_decode(self, **kwargs):
            assert not torch.is_grad_enabled()

    forward = Forward(Trained(), "kv cache", "none")
    assert not forward.prefill(inputs[0]).logits.requires_grad
    assert not forward.read(forward.decode(inputs[1], LOAD)).logits.requires_grad
    forward.warm_up(rows=4, max_model_len=128, pages_per_row=2)


class Bare:
    """Nothing but what serving itself calls."""

    def prefill_forward(self): ...

    def decode_forward(self): ...

    def allocate_kv_cache_per_layer(self): ...


@pytest.mark.parametrize(
    ("adapter", "found", "missing"),
    [
        (None, "None", "prefill_forward() and no decode_forward() and no allocate_kv_cache()"),
        (object(), "an object of object", "prefill_forward() and no decode_forward() and no allocate_kv_cache()"),
    ],
)
def test_an_adapter_that_lacks_what_every_server_calls_is_refused_before_it_serves(adapter, found, missing):
    with pytest.raises(IncompleteAdapter) as error:
        complete(adapter, Bare, warm_up=False)
    assert str(error.value) == (
        f"Bare.initialize_vllm_model() returned {found} that cannot be served: it has no {missing}."
    )


def test_warm_up_is_needed_unless_it_is_off():
    bare = Bare()
    assert complete(bare, Bare, warm_up=False) is bare
    with pytest.raises(IncompleteAdapter) as error:
        complete(bare, Bare, warm_up=True)
    assert str(error.value) == (
        "Bare.initialize_vllm_model() returned an object of Bare that cannot be served: it has no "
        "warmup_model_prefill() and no warmup_model_decode()."
    )


class Rotary(FakeAdapter):
    """Rotary positions of a row are ten times its length ahead."""

    def prefill_forward(self, **kwargs):
        deltas = torch.from_numpy(kwargs["prompt_lens"] * 10)
        return super().prefill_forward(**kwargs), deltas[:, None]


def test_images_and_rotary_positions_of_requests():
    images = [feature(0, 2, pixel_values=[0.5], image_grid_thw=[1, 2, 4])]
    new = [new_request("a", [4, 5], [1]), new_request("b", [6, 7, 8], [2], mm_features=images)]
    rows = Rows(4, [2], 32)
    first = prefill(("a", 3, 0, 2, False), ("b", 1, 0, 3, False), new=new)
    rows.apply(first)
    adapter = Rotary()
    traits = Traits(images=("pixel_values", "image_grid_thw"), request_rope=True)
    forward = Forward(adapter, "kv cache", "none", traits=traits)
    output = forward.prefill(build_prefill(first.plan, rows))
    assert output.logits.argmax(-1).tolist() == [6, 9]
    assert output.rope_deltas.tolist() == [20, 30]
    (call,) = adapter.called("prefill_forward")
    assert call["pixel_values"] == [None, [images[0].data["pixel_values"].data]]
    assert call["image_grid_thw"] == [None, [images[0].data["image_grid_thw"].data]]

    rows.rope_deltas[[3, 1]] = output.rope_deltas
    then = decode(("b", 1, 3, 4, False), cached=[("b", None)], released=[3], finished=["a"])
    rows.apply(then)
    forward.decode(DecodeBuilder(rows).build(then.plan), LOAD)
    assert adapter.called("decode_forward")[0]["rope_deltas_all_users"] == [0, 30, 0, 0]


@pytest.mark.parametrize(
    ("deltas", "found"),
    [
        ((), "a float32 tensor of shape [2, 1, 32]"),
        ((None,), "(a float32 tensor of shape [2, 1, 32], None)"),
        ((torch.zeros(3),), "(a float32 tensor of shape [2, 1, 32], a float32 tensor of shape [3])"),
    ],
    ids=["none", "nothing", "of other rows"],
)
def test_a_prefill_without_its_rotary_positions(inputs, deltas, found):
    class Odd(FakeAdapter):
        def prefill_forward(self, **kwargs):
            out = super().prefill_forward(**kwargs)
            return (out, *deltas) if deltas else out

    with pytest.raises(UnexpectedOutput) as error:
        Forward(Odd(), "kv cache", "all", traits=Traits(request_rope=True)).prefill(inputs[0])
    assert str(error.value) == (
        "Odd.prefill_forward() must return (output, rope_deltas) with a delta for each of 2 rows: its rotary positions "
        f"are its own; got {found}."
    )


def test_released_slots_are_told_to_adapters_that_ask():
    class Keeps(FakeAdapter):
        def release_slots(self, slots):
            self._record("release_slots", {"slots": slots})

    adapter = Keeps()
    forward = Forward(adapter, "kv cache", "all")
    forward.release((2, 0))
    forward.release(())
    assert adapter.called("release_slots") == [{"slots": [2, 0]}]
    Forward(FakeAdapter(), "kv cache", "all").release((1,))
