"""What must hold for adapters that sample on the device with seeds and penalties, and that return logprobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vllm_tt.conformance.cases import Case, RowSpec
from vllm_tt.conformance.check_row import Check
from vllm_tt.conformance.device_run import DeviceRun, drawing, widest_top_k
from vllm_tt.conformance.scores import no_token, slack
from vllm_tt.conformance.workloads import several

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from vllm_tt.conformance.bench import Bench
    from vllm_tt.conformance.sampled import Answer

__all__ = ["CONTROL_CHECKS"]

_SEEDS = (1, 2**32 - 1, 12345)
_REPETITION = 0.25
"""A repetition penalty that favours the prompt: it makes what is wrong with the logits four times as large."""
_RESET_AT = 3
"""The decode step that resets the counts."""


def _seeded_draws_repeat(bench: Bench, case: Case) -> str | None:
    """Every row as in the batch, alone in another slot, and with what was decoded as part of its prompt."""
    if widest_top_k(bench) == 1:
        return None
    seeds = _SEEDS[: len(case.rows)]
    faults, draws = [], 0
    for row, found in enumerate(_drawn(bench, case, seeds)):
        spec, seed, tokens = case.rows[row], seeds[row], bench.rows(case)[row].tokens
        for way, expected in _other_ways(bench, spec.length, tokens, seed):
            draws += len(found)
            for step, (one, other) in enumerate(zip(found, expected, strict=True)):
                if one != other:
                    at = f"slot {spec.slot}, seed {seed}, position {spec.length + step}"
                    faults.append(f"{at}: drew token {one} in the batch and {other} {way}")
        another = (seed + 1) % 2**32
        if case.steps and found == _drawn_alone(bench, spec.length, tokens, another):
            return f"slot {spec.slot}: seeds {seed} and {another} draw the same {len(found)} tokens"
    return faults[0] if len(faults) > bench.tolerance * draws else None


def _other_ways(bench: Bench, length: int, tokens: Sequence[int], seed: int) -> Iterator[tuple[str, list[int]]]:
    yield "alone in slot 0", _drawn_alone(bench, length, tokens, seed)
    ends = range(length, len(tokens) + 1)
    yield "in a prefill", [_drawn_alone(bench, end, tokens[:end], seed)[0] for end in ends]


def _drawn_alone(bench: Bench, length: int, tokens: Sequence[int], seed: int) -> list[int]:
    case = Case(rows=(RowSpec(0, length),), steps=len(tokens) - length)
    return _drawn(bench, case, [seed], tokens)[0]


def _drawn(bench: Bench, case: Case, seeds: Sequence[int], tokens: Sequence[int] = ()) -> list[list[int]]:
    """Each row's draws after its prompt and after each token that the host sends then; ``tokens``: the first row's."""
    run = DeviceRun(bench, case, {row: drawing(bench, seed=seed) for row, seed in enumerate(seeds)})
    if tokens:
        run.rows[0].tokens = list(tokens)
    run.prefill()
    for step in range(case.steps):
        for row, played in enumerate(run.rows):
            run.force(row, played.tokens[played.length + step])
        run.decode()
    return run.tokens


def _penalties_count(bench: Bench, case: Case) -> str | None:
    """One row takes turns between two tokens of its output, one prefers what its prompt has, one has no penalties."""
    (logits,) = bench.alone(bench.rows(case)[0].tokens, case.rows[0].length, 0)
    size = 2 * float(logits.max() - logits.min())
    kinds: tuple[dict[str, float], ...] = (
        {"presence_penalty": -3 * size, "frequency_penalty": size},
        {"repetition_penalty": _REPETITION},
        {},
    )
    params = {row: kinds[row % len(kinds)] for row in range(len(case.rows))}
    run = DeviceRun(bench, case, params)
    counted = _played_with_histories(run, case.steps, bench.rig.sizes.vocab_size)
    for row, played in enumerate(run.rows):
        prompt = played.tokens[: played.length]
        for step, (token, plain) in enumerate(zip(run.tokens[row], run.logits(row), strict=True)):
            scores = _penalised(plain, prompt, counted[row][step], params[row])
            room = slack(plain, bench.tolerance) / _REPETITION
            if fault := _not_the_best(token, scores, room, params[row]):
                return f"slot {played.slot} {_after(step)}: {fault}"
    return None


def _played_with_histories(run: DeviceRun, steps: int, vocab_size: int) -> list[list[list[int]]]:
    """Play ``steps`` decodes; for each row and step the output that penalties are to count."""
    run.prefill()
    prompts = {played.slot: played.tokens[: played.length] for played in run.rows}
    # The host may say that anything was generated before: here two tokens that no step need have sampled.
    known = [[*tokens, vocab_size // 3, vocab_size // 2] for tokens in run.tokens]
    counted: list[list[list[int]]] = [[[]] for _ in run.rows]
    ask = run.ask()
    for step in range(steps):
        if step == _RESET_AT:
            known = [[vocab_size // 5] for _ in known]
        goes_on = step not in (0, _RESET_AT) and run.can_go_on()
        if not goes_on:
            outputs = {played.slot: list(tokens) for played, tokens in zip(run.rows, known, strict=True)}
            ask = run.ask(prompts=prompts, outputs=outputs)
        for row, tokens in enumerate(known):
            counted[row].append(list(tokens))
        run.decode(ask, goes_on=goes_on)
        for tokens, sampled in zip(known, run.tokens, strict=True):
            tokens.append(sampled[-1])
    return counted


def _penalised(
    logits: torch.Tensor, prompt: Sequence[int], output: Sequence[int], params: Mapping[str, float]
) -> torch.Tensor:
    scores, repetition = logits.clone(), params.get("repetition_penalty", 1.0)
    for token in {*prompt, *output}:
        scores[token] *= 1 / repetition if scores[token] > 0 else repetition
    for token, count in Counter(output).items():
        scores[token] -= params.get("frequency_penalty", 0.0) * count + params.get("presence_penalty", 0.0)
    return scores


def _not_the_best(token: int, scores: torch.Tensor, room: float, params: Mapping[str, float]) -> str | None:
    if fault := no_token(token, len(scores)):
        return fault
    best = int(scores.argmax())
    if float(scores[best] - scores[token]) <= room:
        return None
    under = " and ".join(f"{name} {value:.3g}" for name, value in params.items()) or "no penalty beside others' ones"
    return f"sampled token {token}; with {under} it is token {best}"


def _logprobs_are_of_the_logits(bench: Bench, case: Case) -> str | None:
    """Of a row that takes the likeliest token and of one that draws, beside one that asks for none."""
    most = bench.rig.capabilities.max_device_logprobs or 0
    asked = {"enable_log_probs": True, "num_logprobs": min(most, 3)}
    params = {0: asked}
    reach = widest_top_k(bench) if not most else min(widest_top_k(bench), most)
    if len(case.rows) > 1 and reach > 1:
        params[1] = drawing(bench, **asked) | {"top_k": reach}
    run = DeviceRun(bench, case, params)
    answers = [run.prefill(), *(run.decode(goes_on=step > 0) for step in range(case.steps))]
    if fault := next((fault for one in answers if (fault := _too_few(one, asked["num_logprobs"]))), None):
        return fault
    for row in params:
        slot = run.rows[row].slot
        for step, (answer, logits) in enumerate(zip(answers, run.logits(row), strict=True)):
            token, at = run.tokens[row][step], slot if step else row
            if fault := _wrong_logprobs(answer, at, token, logits, bench.tolerance):
                return f"slot {slot} {_after(step)}: {fault}"
    return None


def _too_few(answer: Answer, wanted: int) -> str | None:
    given = 0 if answer.indices is None else answer.indices.shape[1]
    if given >= wanted:
        return None
    return f"logprobs of the {wanted} likeliest tokens were asked for, {given or 'the chosen ones alone'} are given"


def _wrong_logprobs(answer: Answer, row: int, token: int, logits: torch.Tensor, tolerance: float) -> str | None:
    """What is wrong with what ``answer`` says of a row that chose ``token``; ``logits`` [V] are the row's."""
    assert answer.logprobs is not None
    if fault := no_token(token, len(logits)):
        return fault
    expected, room = logits.log_softmax(-1), slack(logits, tolerance)
    if answer.indices is None:
        return _off(token, float(answer.logprobs[row]), expected, room)
    values, tokens = answer.logprobs[row], answer.indices[row].tolist()
    if bool((values[1:] > values[:-1]).any()):
        return f"the logprobs of the likeliest are not in falling order: {[round(one, 4) for one in values.tolist()]}"
    for one, value, least in zip(tokens, values.tolist(), expected.topk(len(tokens)).values.tolist(), strict=True):
        if fault := no_token(one, len(logits)) or _off(one, value, expected, room):
            return fault
        if float(expected[one]) < least - room:
            return f"token {one} is given as one of the {len(tokens)} likeliest, which it is not"
    if token not in tokens and float(expected[token]) > float(values[-1]) + room:
        return f"the chosen token {token} is not among the {len(tokens)} likeliest that are given"
    return None


def _off(token: int, logprob: float, expected: torch.Tensor, room: float) -> str | None:
    if abs(logprob - float(expected[token])) <= room:
        return None
    return (
        f"the logprob of token {token} is {logprob:.4g}; of the logits as they are it is {float(expected[token]):.4g}"
    )


def _after(step: int) -> str:
    return f"after decode step {step}" if step else "after the prefill"


CONTROL_CHECKS: tuple[Check, ...] = (
    Check(
        name="seeds",
        what="a seeded draw is the same in any slot, batch and order, in prefill and decode",
        cases=several(3, 3),
        run=_seeded_draws_repeat,
        declared=("supports_sample_on_device", "supports_device_seeds"),
    ),
    Check(
        name="penalties",
        what="penalties count the prompt and the output, what the device sampled included",
        cases=several(3, 5),
        run=_penalties_count,
        declared=("supports_sample_on_device", "supports_device_penalties"),
    ),
    Check(
        name="logprobs",
        what="logprobs are those of the logits, before penalties and temperature",
        cases=several(3, 2),
        run=_logprobs_are_of_the_logits,
        declared=("supports_sample_on_device", "max_device_logprobs"),
    ),
)
