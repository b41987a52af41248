"""The engine's books, kept a second time from the plans of its steps and from what the adapter was called with."""

from collections import Counter
from itertools import pairwise

from vllm_tt.scheduler.plan import Phase


def expected_counts(plans):
    """What the plans say of phases, tokens, chunks and tokens that were computed twice."""
    ran = [plan for plan in plans if plan.phase is not Phase.EMPTY]
    tokens, computed, ends, chunking, chunked, again = Counter(), {}, {}, set(), 0, 0
    for plan in ran:
        tokens[plan.phase.value] += int((plan.ends - plan.starts).sum())
        rows = zip(plan.req_ids, plan.starts.tolist(), plan.ends.tolist(), plan.intermediate.tolist(), strict=True)
        for req_id, start, end, intermediate in rows:
            before = computed.get(req_id, 0)
            if plan.phase is Phase.PREFILL:
                again += max(0, min(before, end) - start)
                if start != ends.get(req_id, start):
                    chunking.discard(req_id)  # preempted between two chunks
                chunked += intermediate and req_id not in chunking
                (chunking.add if intermediate else chunking.discard)(req_id)
            computed[req_id], ends[req_id] = max(before, end), end
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
