"""The root of the package's errors.

An error class is declared beside the code that raises it. Its docstring is the message: a template
that says what was expected, what was found and what to do, wrapped where it is long; the constructor
takes the facts.
"""

from __future__ import annotations

__all__ = ["ConfigError", "TTError"]


class TTError(Exception):
    """{message}"""

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        template = " ".join((type(self).__doc__ or "").split())
        super().__init__(template.format(**facts))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.facts)


class ConfigError(TTError, ValueError):
    """{message}"""


def _rebuild(kind: type[TTError], facts: dict[str, object]) -> TTError:
    return kind(**facts)
