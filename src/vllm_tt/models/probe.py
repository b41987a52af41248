"""``python -m vllm_tt.models.probe FOLDER MODULE:CLASS DESCRIPTOR``: imports an adapter, writes what its class shows.

The result is one JSON object on the descriptor: ``facts``, or ``fault`` with ``message`` and place.
Started by the validator, which ends the process when it takes too long.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm_tt.bundle.facts import UNKNOWN, AdapterFacts, Method, Parameter, Place, Signature
from vllm_tt.contract import CALLS
from vllm_tt.models.loader import ClassMissing, ImportFailed, ModuleMissing, NotAClass, load_class

__all__ = ["facts_of_class", "main"]

_FURTHER = ("__init__", "compute_logits", "embed_input_ids", "forward")
_SAMPLE = {
    "model_name": "org/model",
    "num_devices": 2,
    "tt_data_parallel": 1,
    "max_model_len": 2048,
    "max_num_seqs": 32,
}


def main(arguments: list[str]) -> None:
    """Import the class, say what there is to say, and end without running anybody's exit handlers."""
    folder, main_class, descriptor = Path(arguments[0]), arguments[1], int(arguments[2])
    result = _outcome(folder, main_class)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(result, file, default=repr)
    os._exit(0)


def _outcome(folder: Path, main_class: str) -> dict[str, Any]:
    try:
        found = load_class(main_class, folder, "the bundle")
    except ImportFailed as error:
        return _import_failed(error, folder)
    except (ClassMissing, NotAClass) as error:
        code = "TB303" if isinstance(error, ClassMissing) else "TB304"
        what = f"{error.facts['module']!r} has no class {main_class.partition(':')[2]!r}"
        if isinstance(error, NotAClass):
            kind = str(error.facts["found"]).removeprefix("a ")
            what = f"{main_class!r} is a {kind if kind == 'function' else f'value of type {kind}'}, not a class"
        return {"fault": "import", "code": code, "message": what}
    except ModuleMissing as error:
        return {"fault": "dependency", "message": error.facts["module"]}
    return {"facts": facts_of_class(found).to_dict()}


def _import_failed(error: ImportFailed, folder: Path) -> dict[str, Any]:
    cause = error.__cause__
    if isinstance(cause, SystemExit):
        return {"fault": "exit", "message": f"SystemExit({cause.code!r})"}
    missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
    top = (missing or "").partition(".")[0]
    if top and not (folder / top).exists() and not (folder / f"{top}.py").exists():
        return {"fault": "dependency", "message": missing}
    place, _, line = str(error.facts["place"]).partition(" (")[0].rpartition(":")
    inside = Path(place).is_relative_to(folder)
    return {
        "fault": "import",
        "message": f"import fails: {error.facts['cause']}",
        "file": Path(place).relative_to(folder).as_posix() if inside else place,
        "line": int(line) if line.isdigit() else None,
    }


def facts_of_class(found: type[Any]) -> AdapterFacts:
    """The facts of an imported class; methods have no bodies, and places are left to the source."""
    names = [*(call.method for call in CALLS), *_FURTHER, "model_capabilities"]
    methods = {}
    for name in names:
        raw = inspect.getattr_static(found, name, None)
        if raw is not None and raw is not object.__dict__.get(name):
            methods[name] = _method(name, raw)
    return AdapterFacts(
        name=found.__name__,
        place=Place(),
        methods=methods,
        capabilities=_plain(inspect.getattr_static(found, "model_capabilities", None)),
        decode_contract=_plain(inspect.getattr_static(found, "decode_input_update_contract", None)),
        several_groups="get_kv_cache_spec" in methods,
        abstract=tuple(sorted(getattr(found, "__abstractmethods__", ()))),
        max_tokens=_max_tokens(found, methods.get("get_max_tokens_all_users")),
    )


def _method(name: str, raw: Any) -> Method:
    kinds = ((classmethod, "class"), (staticmethod, "static"), (property, "property"))
    kind = next((word for type_, word in kinds if isinstance(raw, type_)), "instance")
    inner = getattr(raw, "__func__", raw)
    if kind == "property" or not callable(inner) or isinstance(inner, type):
        return Method(name=name, kind=kind if kind == "property" else "value")
    return Method(
        name=name,
        kind=kind,
        is_async=inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner),
        is_generator=inspect.isgeneratorfunction(inner),
        signature=_signature(inner, drop_first=kind != "static"),
    )


def _signature(function: Any, *, drop_first: bool) -> Signature | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if drop_first and parameters and parameters[0].kind in (0, 1):  # positional: self or cls
        parameters = parameters[1:]
    named = tuple(
        Parameter(
            name=one.name,
            required=one.default is inspect.Parameter.empty,
            by_position=one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD),
            by_keyword=one.kind is not one.POSITIONAL_ONLY,
        )
        for one in parameters
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    )
    kinds = {one.kind for one in parameters}
    rest = inspect.Parameter
    return Signature(parameters=named, takes_args=rest.VAR_POSITIONAL in kinds, takes_kwargs=rest.VAR_KEYWORD in kinds)


def _plain(value: Any) -> Any:
    """A value that survives JSON, or a text that is of the wrong type for whatever it stands for."""
    if isinstance(value, property):
        return UNKNOWN
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        if isinstance(value, dict):
            return {str(key): _plain(one) for key, one in value.items()}
        return f"a value of type {type(value).__name__}"
    return value


def _max_tokens(found: type[Any], method: Method | None) -> Any:
    """What the class says of a small server, or the error it raises: the worker would meet the same."""
    if method is None or method.kind not in ("class", "static"):
        return UNKNOWN
    try:
        return _plain(found.get_max_tokens_all_users(**_SAMPLE))
    except TypeError:  # the signature's own findings say it
        return UNKNOWN
    except Exception as error:  # noqa: BLE001 - whatever an adapter raises is what there is to report
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1:])
