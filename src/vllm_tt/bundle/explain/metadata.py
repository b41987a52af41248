"""Explanations of TB0, TB1, TB2, TB6 and TB7: the folder, its metadata, other bundles, requirements."""

from __future__ import annotations

from vllm_tt.bundle.explain.explanation import table

__all__ = ["METADATA"]

METADATA = table(
    (
        "TB001",
        "The path that is given, or the value of EXTRA_MODELS_DIR, is not a folder that exists.",
        "EXTRA_MODELS_DIR=/opt/bundels",
        "Correct the path. A list of folders is separated by ':'.",
    ),
    (
        "TB002",
        "The folder of bundles exists and this user may not read it.",
        "drwx------ root root /opt/bundles",
        "Give the user that serves the right to read and enter the folder.",
    ),
    (
        "TB003",
        "EXTRA_MODELS_DIR names a bundle. It must name the folder that bundles are in: only children are scanned.",
        "EXTRA_MODELS_DIR=/opt/bundles/my-model with /opt/bundles/my-model/vllm_metadata.json",
        "Use the parent folder: EXTRA_MODELS_DIR=/opt/bundles.",
    ),
    (
        "TB004",
        "The folder has no vllm_metadata.json, so it is no bundle. In a scan such folders are passed over in silence.",
        "my-model/adapter.py and nothing else",
        "Add the file, or name another folder. 'tt-bundle new' makes a bundle.",
    ),
    (
        "TB005",
        "A file is named almost like the metadata file. Readers look for the exact name only.",
        "my-model/VLLM_Metadata.json",
        "Rename it to vllm_metadata.json.",
    ),
    (
        "TB006",
        "The folder's name begins with a dot. Such folders are staging areas: they are not registered.",
        "/opt/bundles/.my-model/vllm_metadata.json",
        "Rename the folder.",
    ),
    (
        "TB007",
        "The folder's name has characters that archives, modules or other file systems do not take.",
        "/opt/bundles/my model v2",
        "Use letters, digits, '-' and '_', or give the metadata a 'name', which tools use instead.",
    ),
    (
        "TB008",
        "The folder is a symbolic link, or a second name of a bundle that is registered already.",
        "/opt/bundles/latest -> my-model",
        "Nothing, if that is meant: each bundle is registered once.",
    ),
    (
        "TB009",
        "A symbolic link in the place of the bundle or of its metadata leads nowhere.",
        "/opt/bundles/my-model -> /mnt/gone",
        "Restore what it points to, or remove the link.",
    ),
    (
        "TB010",
        "The bundle or its metadata file exists and this user may not read it.",
        "-rw------- root root vllm_metadata.json",
        "Give the user that serves the right to read it.",
    ),
    (
        "TB011",
        "In the place of the metadata file is a folder, a FIFO, a socket or a device. It is not opened.",
        "mkfifo my-model/vllm_metadata.json",
        "Put a regular file there.",
    ),
    (
        "TB012",
        "The value of EXTRA_MODELS_DIR depends on where it is read: it is relative, has a '~' or quotes.",
        "EXTRA_MODELS_DIR=./bundles",
        "Nothing here: it is made absolute. Other readers take it as it is; an absolute path is safe everywhere.",
    ),
    (
        "TB013",
        "EXTRA_MODELS_DIR names a package of tt-model, whose bundles are one level further down.",
        "EXTRA_MODELS_DIR=/opt/package with /opt/package/vllm_models/",
        "Use the folder that the message names: EXTRA_MODELS_DIR=/opt/package/vllm_models.",
    ),
    (
        "TB101",
        "The metadata file is not JSON; line and column say where it stops to be.",
        '{"arch": "LlamaForCausalLM",}',
        "Correct the text. JSON has double quotes, no comments and no comma after the last item.",
    ),
    (
        "TB102",
        "The file begins with the three bytes of a byte-order mark. It is read here; other readers reject the file.",
        "ef bb bf 7b",
        "Save it as UTF-8 without a mark, or run 'tt-bundle validate --fix'.",
    ),
    (
        "TB103",
        "The file is not UTF-8.",
        "a file saved as UTF-16 or Latin-1",
        "Save it as UTF-8.",
    ),
    (
        "TB104",
        "An object has a key twice. The last one counts, which is rarely what the first one's author meant.",
        '{"arch": "A", "main_class": "m:C", "arch": "B"}',
        "Remove one of them.",
    ),
    (
        "TB105",
        "The file holds a list, a text, a number or null. The metadata is an object.",
        '["LlamaForCausalLM"]',
        'Write {"arch": ..., "main_class": ...}.',
    ),
    (
        "TB106",
        "The file is larger than 1 MiB, which no metadata is. It is not read.",
        "a weights file renamed to vllm_metadata.json",
        "Put the metadata there alone.",
    ),
    (
        "TB107",
        "Objects or lists are nested more than 64 levels deep.",
        "[[[[...]]]]",
        "Flatten the value, or keep it in a file of its own.",
    ),
    (
        "TB108",
        "The file has NaN, Infinity or a number of thousands of digits, which are not JSON that others read.",
        '{"x-factor": NaN}',
        "Use a number, a string or null.",
    ),
    (
        "TB109",
        "A text has a character that does not show: a control, one that reorders text, half of a pair.",
        '{"main_class": "adapter:Mo\\u202eled"}',
        "Remove the character. In 'arch' and 'main_class' the bundle is skipped for it.",
    ),
    (
        "TB201",
        "'arch' and 'main_class' are the two keys that registration needs; one is missing, null or empty.",
        '{"architecture": "LlamaForCausalLM", "main_class": "adapter:Model"}',
        'Add it: {"arch": "LlamaForCausalLM", "main_class": "adapter:Model"}.',
    ),
    (
        "TB202",
        (
            "A value has another type than its field. In 'arch' and 'main_class' that skips the bundle; any other "
            "field is ignored alone."
        ),
        '{"arch": ["LlamaForCausalLM"], "main_class": "adapter:Model"}',
        "Write the type that the message names; 'tt-bundle schema' prints all of them.",
    ),
    (
        "TB203",
        "An architecture is the name of a class, as in a checkpoint's config.json.",
        '{"arch": "meta-llama/Llama-3.1-8B"}',
        'Write the name in "architectures" of config.json: "LlamaForCausalLM".',
    ),
    (
        "TB204",
        "The architecture has the prefix TT already. It is not prefixed again, and the plain name is not registered.",
        '{"arch": "TTLlamaForCausalLM"}',
        'Write the plain name: "LlamaForCausalLM".',
    ),
    (
        "TB206",
        "'main_class' has no colon between the module and the class.",
        '{"main_class": "adapter.Model"}',
        'Write "adapter:Model".',
    ),
    (
        "TB207",
        "'main_class' is not one module, one colon and one class, with nothing else around.",
        '{"main_class": "adapter:Model:"}',
        'Write "adapter:Model".',
    ),
    (
        "TB208",
        "The part before the colon is a file's path, or cannot be a module's name.",
        '{"main_class": "tt/generator.py:Model"}',
        'Write the module: "tt.generator:Model". Rename files with dashes or keywords in their names.',
    ),
    (
        "TB209",
        "The class is inside another one; registries look a class up by its name in the module.",
        '{"main_class": "adapter:Outer.Model"}',
        "Move the class to the top of the module, or bind it there: Model = Outer.Model.",
    ),
    (
        "TB210",
        "The key is none of the format's. It is ignored, and a misspelt field is lost in silence elsewhere.",
        '{"hf_weight": "org/name"}',
        "Correct the name. Keys of your own begin with 'x-'.",
    ),
    (
        "TB211",
        "'hf_weights' is not the id of a repository on the Hub: tools that download the weights cannot use it.",
        '{"hf_weights": {"repo": "org/name", "revision": "main"}}',
        'Write "hf_weights": "org/name", and the revision as "hf_revision".',
    ),
    (
        "TB212",
        "The launch map is an object of entries, each with a non-empty 'command' list and an 'env' object.",
        '{"launch": {"default": {"command": "vllm serve"}}}',
        'Write {"command": ["vllm", "serve"], "env": {}}, or leave the map out.',
    ),
    (
        "TB213",
        "tt-model up to version 4 starts servers from the launch map only. Newer versions do not read it.",
        '{"arch": "LlamaForCausalLM", "main_class": "adapter:Model"}',
        "Nothing, unless such a tt-model is used: then add a map with a 'default' entry.",
    ),
    (
        "TB214",
        (
            "tt-model chooses 'default', an architecture, or an architecture with a number of cards. No machine gives "
            "another key."
        ),
        '{"launch": {"p150": {"command": ["vllm", "serve"]}}}',
        "Rename it to 'blackhole', 'wormhole_b0-2card' or the like, and have a 'default'.",
    ),
    (
        "TB215",
        "The metadata is written for a newer format than this plugin reads, or its version is no number.",
        '{"schema_version": 2}',
        "Upgrade vllm-tt, or write the version that is used (1).",
    ),
    (
        "TB216",
        "A launch entry says something else than the rest of the metadata, or works on its author's machine only.",
        '{"hf_weights": "org/a", "launch": {"default": {"command": ["vllm", "serve", "--model", "org/b"]}}}',
        "Make the two agree; use commands and paths that exist on every machine.",
    ),
    (
        "TB217",
        "tt-model copies the value into a shell script, where $(...), $NAME, backticks and quotes are expanded.",
        '{"env": {"HF_HOME": "$HOME/cache"}}',
        "Write the value itself, or have the server read it from its own environment.",
    ),
    (
        "TB218",
        "The mesh is none of those that MESH_DEVICE takes.",
        '{"mesh_devices": ["N1500"]}',
        "Use one of the names in the message.",
    ),
    (
        "TB219",
        (
            "Sizes contradict one another, or what serving needs: pages are multiples of 32 tokens, a mesh's limit is "
            "within the bundle's, tt_transformers warms up powers of two."
        ),
        '{"limits": {"block_size": 20}}',
        "Correct the numbers.",
    ),
    (
        "TB220",
        (
            "'architectures' is the list of all architectures: 'arch' is one of them, and each is there once, with or "
            "without the prefix."
        ),
        '{"arch": "A", "architectures": ["B", "TTB"]}',
        'Write {"arch": "A", "architectures": ["A", "B"]}.',
    ),
    (
        "TB221",
        "Tools order versions by PEP 440 and read licences as SPDX identifiers.",
        '{"version": "spring", "license": "Apache 2"}',
        'Write "1.0.0" and "Apache-2.0".',
    ),
    (
        "TB222",
        "The installed vLLM registers no parser of that name; a server refuses to start unless another is named.",
        '{"serving": {"tool_parser": "llama3-json"}}',
        "Use a name that 'vllm serve --help=tool-call-parser' or '--help=reasoning-parser' shows.",
    ),
    (
        "TB601",
        "Two bundles serve the same architecture. The first by the folder's name is registered, the other one never.",
        'a/ and b/ both with {"arch": "LlamaForCausalLM"}',
        "Remove one, or keep them in different folders and choose with EXTRA_MODELS_DIR.",
    ),
    (
        "TB602",
        "tt-metal has a generator for the architecture; the bundle is served instead of it.",
        '{"arch": "LlamaForCausalLM"}',
        "Nothing, if that is meant.",
    ),
    (
        "TB603",
        "Two bundles have the same 'name', which archives and 'tt-bundle list' show.",
        'a/ and b/ both with {"name": "llama"}',
        "Rename one.",
    ),
    (
        "TB701",
        "A version range does not follow PEP 440, or a package PEP 508. The line is ignored.",
        '{"requires": {"vllm": ">>0.9"}}',
        'Write ">=0.9", or ">=0.9,<1".',
    ),
    (
        "TB702",
        "What is installed here is not in the range that the bundle asks for: the reader skips the bundle here.",
        '{"requires": {"vllm": ">=9"}} with vllm 0.26',
        "Install a version in the range, or widen it. TT_BUNDLE_IGNORE_REQUIRES=1 registers the bundle nevertheless.",
    ),
    (
        "TB703",
        "The installed build has no version, or none that can be compared. The bundle is registered.",
        "a vLLM built from source without tags",
        "Nothing.",
    ),
    (
        "TB704",
        "A package that the adapter needs is not installed: the reader skips the bundle here.",
        '{"requires": {"packages": ["qwen-vl-utils"]}}',
        "Install the package. TT_BUNDLE_IGNORE_REQUIRES=1 registers the bundle nevertheless.",
    ),
    (
        "TB705",
        "No version can be in the range.",
        '{"requires": {"vllm": ">=2,<1"}}',
        "Swap or correct the bounds.",
    ),
)
