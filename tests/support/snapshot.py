"""A vLLM configuration as text, to tell whether a hook changed it."""

from __future__ import annotations

import dataclasses
import json


def snapshot(config):
    """A configuration as JSON text, apart from the identity that each start draws."""

    def plain(value):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {name: plain(item) for name, item in vars(value).items() if name != "instance_id"}
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    return json.dumps(plain(config), default=str, sort_keys=True)
