"""Explanations of TB3: the module that ``main_class`` names, its class and its imports."""

from __future__ import annotations

from vllm_tt.bundle.explain.explanation import table

__all__ = ["MODULES"]

MODULES = table(
    (
        "TB301",
        "The module of 'main_class' is neither a file of the bundle nor installed. Loading the model would fail.",
        '{"main_class": "adaptor:Model"} beside adapter.py',
        "Correct the name, add the file, or install the package and list it in requires.packages.",
    ),
    (
        "TB302",
        "The class is in tt-metal's tree, which is not on the path here: nothing of it could be checked.",
        '{"main_class": "models.tt_transformers.tt.generator_vllm:LlamaForCausalLM"}',
        "Validate where tt-metal is on PYTHONPATH. An error with --installed, a note for built-in classes.",
    ),
    (
        "TB303",
        "The module binds no class of that name.",
        '{"main_class": "adapter:LlamaForCausaLM"}',
        "Correct the name; the hint lists the classes that there are.",
    ),
    (
        "TB304",
        "The name is bound to a function or a value. The registry needs the class itself.",
        '{"main_class": "adapter:build"} with def build(): ...',
        "Name the class.",
    ),
    (
        "TB305",
        (
            "A module of the bundle has the name of an installed one. An absolute import finds the installed one; only "
            "the module of 'main_class' is loaded from the bundle's own file."
        ),
        "import utils, with utils.py in the bundle and a package 'utils' installed",
        "Rename the module, or put it into a package with the adapter and import it relatively.",
    ),
    (
        "TB306",
        (
            "Two bundles have a main module of the same name. Here each gets its own; other plugins give the second "
            "one the first one's class."
        ),
        "a/generator_vllm.py and b/generator_vllm.py",
        "Rename one where other plugins are used.",
    ),
    (
        "TB307",
        "Two bundles have a helper module of the same name. Only one model is loaded in a process, so both work.",
        "a/common.py and b/common.py",
        "Nothing, or use packages with names of their own.",
    ),
    (
        "TB308",
        "A module of the bundle has a standard-library module's name, which an absolute import finds instead.",
        "import token, with token.py in the bundle",
        "Rename it.",
    ),
    (
        "TB309",
        "The bundle has a package 'models', as tt-metal does. Where tt-metal is installed, imports find that one.",
        "models/llama.py in the bundle",
        "Rename the package.",
    ),
    (
        "TB310",
        "The adapter could not be imported: a package is missing here, or its code raises.",
        "import ttnn, without ttnn",
        "Install what is missing, or correct the line that the finding points to.",
    ),
    (
        "TB311",
        "A file is not Python, or not that of the oldest version that requires.python allows.",
        "def prefill_forward(self, tokens:",
        "Correct the line, or raise requires.python.",
    ),
    (
        "TB312",
        "Importing the adapter takes too long, ends the process or kills it. A server would do the same.",
        "sys.exit(1) at the top of adapter.py",
        "Open devices, download and compute in initialize_vllm_model, not on import.",
    ),
    (
        "TB313",
        (
            "A module at the top of the bundle imports relatively. This plugin loads it in a package of its own; "
            "others load it as a top-level module, where that is an error."
        ),
        "from .helpers import rope, in adapter.py",
        "Import absolutely, or move adapter and helpers into a package: main_class 'my_model.adapter:Model'.",
    ),
    (
        "TB314",
        "The code uses a path of its author's machine, or imports from above the bundle.",
        'sys.path.insert(0, "/home/me/tt-metal")',
        "Ship what is needed in the bundle, and find files relative to __file__.",
    ),
)
