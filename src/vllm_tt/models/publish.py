"""Puts our models into vLLM's registry, so that it accepts their names and answers about them at once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vllm.model_executor.models import registry as vllm_registry

from vllm_tt.bundle.source import ClassSource, Outside, SourceTree
from vllm_tt.log import get_logger
from vllm_tt.models.facade import facade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    from vllm_tt.models.entry import Entry

__all__ = ["explain_unknown", "is_plain_text_model", "publish"]

log = get_logger(__name__)

_INTERFACES = ("vllm.model_executor.models.interfaces", "vllm.model_executor.models.interfaces_base")
# Bases of vLLM's text models that change none of the answers a facade gives.
_NO_OTHER_ANSWER = frozenset(
    {
        "EagleModelMixin",
        "LocalArgmaxMixin",
        "MixtureOfExperts",
        "SupportsEagle",
        "SupportsEagle3",
        "SupportsEagleBase",
        "SupportsLoRA",
        "SupportsPP",
        "SupportsQuant",
    }
)
_HARMLESS = {f"{module}.{name}" for module in _INTERFACES for name in _NO_OTHER_ANSWER}
_HARMLESS |= {"torch.nn.Module", "builtins.object"}


def publish(entries: Iterable[Entry]) -> None:
    """Register every entry under its prefixed name, and see to its plain one.

    A plain name that vLLM does not know is registered too: vLLM looks the checkpoint's own name up
    before the platform can prefix it. One that vLLM knows stays vLLM's, answered faster.
    """
    models = vllm_registry.ModelRegistry.models
    for entry in entries:
        stand_in = facade(entry)
        vllm_registry.ModelRegistry.register_model(entry.arch, stand_in)
        if entry.plain is None:
            continue
        if entry.plain not in models or entry.text_only:
            vllm_registry.ModelRegistry.register_model(entry.plain, stand_in)
            log.debug("registered the plain name %s too", entry.plain)
        elif _is_text_name(entry.plain):
            models[entry.plain] = _Quick(upstream=models[entry.plain], stand_in=stand_in)


def explain_unknown(ours: Callable[[list[str]], Exception]) -> None:
    """Have vLLM raise ``ours(architectures)`` for architectures that nobody registered.

    vLLM's own error lists every model it knows and nothing of bundles; it comes before any hook of
    the platform.
    """
    vllm_models = vllm_registry.ModelRegistry
    theirs = getattr(vllm_models, "_raise_for_unsupported", None)
    if theirs is None:
        return

    def explain(architectures: list[str]) -> NoReturn:
        if any(arch in vllm_models.models for arch in architectures):
            theirs(architectures)
        raise ours(architectures)

    vllm_models._raise_for_unsupported = explain  # noqa: SLF001 - there is no public way to word this error


@dataclass(frozen=True)
class _Quick(vllm_registry._BaseRegisteredModel):  # noqa: SLF001 - the one type that the table takes
    """vLLM's own entry of a text model, answered from the facade where that gives the same answers.

    vLLM's way to the answers is a subprocess that imports torch and the model: 16 s and more when
    its cache is cold. Only the questions are answered here; the platform's worker loads the model.
    """

    upstream: Any
    stand_in: type

    def inspect_model_cls(self) -> Any:
        if not self._is_plain():
            return self.upstream.inspect_model_cls()
        return vllm_registry._ModelInfo.from_model_cls(self.stand_in)  # noqa: SLF001 - as register_model does

    def load_model_cls(self) -> Any:
        return self.stand_in if self._is_plain() else self.upstream.load_model_cls()

    def _is_plain(self) -> bool:
        return is_plain_text_model(self.upstream.module_name, self.upstream.class_name)


def _is_text_name(arch: str) -> bool:
    """Whether vLLM itself lists the architecture as a text model, and nobody has replaced its entry."""
    lazy = getattr(vllm_registry, "_LazyRegisteredModel", None)
    texts = getattr(vllm_registry, "_TEXT_GENERATION_MODELS", {})
    if lazy is None or arch not in texts or arch in getattr(vllm_registry, "_MULTIMODAL_MODELS", {}):
        return False
    return isinstance(vllm_registry.ModelRegistry.models[arch], lazy)


@lru_cache(maxsize=64)
def is_plain_text_model(module: str, name: str) -> bool:
    """Whether vLLM's class is a decoder without traits that the facade lacks, as its source tells.

    Inner state, hybrid layers, pooling, other attention and anything that is not known here make it
    something else: vLLM then answers for itself.
    """
    info = vllm_registry._ModelInfo  # noqa: SLF001
    answers = frozenset(getattr(info, "__dataclass_fields__", ())) | {"supports_transcription_only"}
    tree = SourceTree(None, outside=frozenset({"torch", "transformers", *_INTERFACES}))
    for found in tree.lineage(module, name):
        if isinstance(found, Outside):
            if found.name not in _HARMLESS:
                return False
        elif found.node.decorator_list or found.node.keywords or _binds(found, answers):
            return False
    return True


def _binds(found: ClassSource, names: frozenset[str]) -> bool:
    """Whether the class body mentions one of ``names`` as a target."""
    targets: list[ast.expr] = []
    for statement in found.node.body:
        targets += statement.targets if isinstance(statement, ast.Assign) else []
        targets += [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id in names for target in targets)
