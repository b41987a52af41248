"""For people: what each code means, an example, and what to do. The rules themselves are in ``findings``."""

from vllm_tt.bundle.explain.explanations import EXPLANATIONS, Explanation, nearest_codes

__all__ = ["EXPLANATIONS", "Explanation", "nearest_codes"]
