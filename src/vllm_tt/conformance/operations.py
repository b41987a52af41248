"""Watches every ttnn operation that an adapter calls: how many, and which one fails with what arguments."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Operations", "watch"]

_TRANSFERS = frozenset(
    {
        "ttnn.from_torch",
        "ttnn.to_torch",
        "ttnn.as_tensor",
        "ttnn.to_device",
        "ttnn.allocate_tensor_on_device",
        "ttnn.from_device",
        "ttnn.get_device_tensors",
    }
)
"""Operations that move values, or make room for them, and compute none."""


class Operations:
    """The operations called so far, those inside others not counted."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._depth = 0
        self._failed: tuple[BaseException, str] | None = None

    @property
    def computed(self) -> int:
        """How many operations computed something on the mesh."""
        return sum(count for name, count in self.calls.items() if name not in _TRANSFERS)

    def failure(self, error: BaseException) -> str | None:
        """The call, with its arguments, that raised ``error`` or its cause."""
        known, call = self._failed or (None, "")
        seen: BaseException | None = error
        while seen is not None:
            if seen is known:
                return call
            seen = seen.__cause__ or seen.__context__
        return None

    def run(self, name: str, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._depth == 0:
            self.calls[name] += 1
        self._depth += 1
        try:
            return call(*args, **kwargs)
        except Exception as error:
            # Described here: the arguments may be gone when the error is caught. The outermost call stays.
            self._failed = (error, f"{name}({_arguments(args, kwargs)})")
            raise
        finally:
            self._depth -= 1


@contextmanager
def watch(ttnn: Any) -> Iterator[Operations]:
    """Operations called within the block, by whatever name the adapter imported them."""
    watched = Operations()
    originals = [(kind, kind.__call__) for kind in (ttnn.decorators.FastOperation, ttnn.decorators.Operation)]

    def watching(original: Any) -> Any:
        def call(operation: Any, *args: Any, **kwargs: Any) -> Any:
            name = operation.python_fully_qualified_name
            return watched.run(name, lambda *a, **k: original(operation, *a, **k), args, kwargs)

        return call

    for kind, original in originals:
        kind.__call__ = watching(original)
    try:
        yield watched
    finally:
        for kind, original in originals:
            kind.__call__ = original


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in kwargs.items())])


def _shown(value: Any) -> str:
    """A tensor as shape, dtype, layout and place; anything else as it prints, shortened."""
    if isinstance(value, (list, tuple)) and any(hasattr(item, "shape") for item in value):
        return f"[{', '.join(map(_shown, value))}]"
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype"):
        text = " ".join(repr(value).split())
        return text if len(text) <= 60 else text[:57] + "..."
    parts = [str(list(shape)), str(value.dtype).rpartition(".")[2].lower()]
    if hasattr(value, "memory_config"):
        parts.append(str(value.layout).rpartition(".")[2])
        parts.append(_place(value))
    return " ".join(parts)


def _place(tensor: Any) -> str:
    try:
        config = tensor.memory_config()
        return f"{config.buffer_type.name} {config.memory_layout.name.lower()}"
    except (RuntimeError, AttributeError):
        return "host"
