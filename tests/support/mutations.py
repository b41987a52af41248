"""Random damage to metadata files and source texts, reproducible from a seed."""

import copy
import json
import random

ODD = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    float("nan"),
    "",
    " ",
    "a:b",
    "\0",
    "\ud800",
    "\u202e",
    "é" * 300,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    ["N150", 7],
    "../../x",
    "hf_" + "Ab1" * 12,
    ">=1,<0",
    "$(id)",
    "x" * 5000,
]
KEYS = [
    "arch",
    "architectures",
    "main_class",
    "hf_weights",
    "name",
    "version",
    "requires",
    "limits",
    "launch",
    "serving",
    "tags",
    "mesh_devices",
    "schema_version",
    "license",
    "homepage",
    "x-mine",
    "env",
    "command",
    "per_device",
    "python",
    "packages",
    "block_size",
    "default",
    "MESH_DEVICE",
    "Arch",
    "$schema",
]
KEYS += ["", "\n"]
BYTES = [
    b"",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"\\",
    b"\xff",
    b"\x00",
    b"\xef\xbb\xbf",
    b"NaN",
    b"1e999",
    b"//",
    b"'",
    b"\n",
    b"\xed\xa0\x80",
    b"[" * 2000,
    b"9" * 5000,
    b'"\\ud800"',
    b'"arch": "B",',
]
SOURCE = [
    "(",
    ")",
    ":",
    "\n",
    "\n\n    ",
    "async ",
    "yield ",
    "*",
    "**",
    ", ",
    "=1",
    "self",
    "cls",
    "@property\n    ",
    "\0",
    "import token\n",
    "from .. import x\n",
    "class Model(Model):\n",
    "é",
    "lambda: ",
    "\t",
    "'",
    "return ",
]


def mutated(data, seed):
    """A damaged copy of a metadata file: its values, or its bytes."""
    choose = random.Random(seed)
    if choose.random() < 0.5:
        return _bytes(data, choose)
    root = json.loads(data)
    for _ in range(choose.randint(1, 3)):
        _value(root, choose)
    text = json.dumps(root, ensure_ascii=choose.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def mutated_source(text, seed):
    """A damaged copy of a source text."""
    choose = random.Random(seed)
    for _ in range(choose.randint(1, 4)):
        place, end = sorted(choose.choices(range(len(text) + 1), k=2))
        end = end if choose.random() < 0.2 else place + choose.randint(0, 12)
        text = text[:place] + choose.choice(SOURCE) + text[end:]
    return text


def _bytes(data, choose):
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(data) + 1)
        end = place + choose.choice([0, 0, 1, 1, 5, len(data)])
        data = data[:place] + choose.choice(BYTES) + data[end:]
    return data


def _value(root, choose):
    """Replace, add or remove something somewhere in the tree."""
    node = root
    while choose.random() < 0.6:
        inner = [
            one for one in (node.values() if isinstance(node, dict) else node) if isinstance(one, (dict, list)) and one
        ]
        if not inner:
            break
        node = choose.choice(inner)
    if isinstance(node, list):
        node.insert(choose.randrange(len(node) + 1), copy.deepcopy(choose.choice(ODD)))
        return
    key = choose.choice([*node, *KEYS])
    if choose.random() < 0.2:
        node.pop(key, None)
    else:
        node[key] = copy.deepcopy(choose.choice(ODD))
