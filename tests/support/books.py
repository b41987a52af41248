"""The engine's books, kept a second time from the plans of its steps and from what the adapter was called with."""

from collections import Counter
from itertools import pairwise

from vllm_tt.scheduler.plan import Phase


def expected_counts(plans):
    """What the plans say of phases, tokens, chunks and tokens that were computed twice."""
    ran = [plan for plan in plans if plan.phase is not Phase.EMPTY]
    tokens, computed, chunking, chunked, again = Counter(), {}, {}, 0, 0
    for plan in plans:
        for slot in plan.released:
            chunking.pop(slot, None)
        if plan.phase is Phase.EMPTY:
            continue
        tokens[plan.phase.value] += int((plan.ends - plan.starts).sum())
        columns = (plan.slots, plan.starts, plan.ends, plan.intermediate)
        for req_id, slot, start, end, intermediate in zip(plan.req_ids, *map(list, columns), strict=True):
            before = computed.get(req_id, 0)
            if plan.phase is Phase.PREFILL:
                again += max(0, min(before, end) - start)
                chunked += bool(intermediate and not chunking.get(slot))
                chunking[slot] = intermediate
            computed[req_id] = max(before, end)
    return {
        "steps": Counter(plan.phase.value for plan in ran),
        "tokens": tokens,
        "phase_switches": sum(one.phase is not other.phase for one, other in pairwise(ran)),
        "chunked_prompts": chunked,
        "recomputed_tokens": again,
    }


def counted(counts):
    """The engine's own counts, in the same form."""
    steps = Counter()
    for kind, number in counts.get("steps", {}).items():
        steps[kind.partition(" ")[0]] += number
    single = {
        name: counts.get(name, {}).get("", 0) for name in ("phase_switches", "chunked_prompts", "recomputed_tokens")
    }
    return {"steps": steps, "tokens": Counter(counts.get("tokens", {}))} | single
