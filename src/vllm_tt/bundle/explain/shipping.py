"""Explanations of TB8 and TB9: packing, archives and the Hub."""

from __future__ import annotations

from vllm_tt.bundle.explain.explanation import table

__all__ = ["SHIPPING"]

SHIPPING = table(
    (
        "TB801",
        "The link leads to a file of the bundle. Archives hold no links, so it becomes a copy.",
        "config.json -> base.json",
        "Nothing.",
    ),
    (
        "TB802",
        "The link leads out of the bundle, to nothing or to itself; what it leads to is not the bundle's to ship.",
        "weights -> /mnt/weights",
        "Copy the file into the bundle, or remove the link.",
    ),
    (
        "TB804",
        "The file looks like model weights. A bundle is code; the weights are named by 'hf_weights'.",
        "model.safetensors",
        "Move the file out of the bundle, or pack with --include-weights.",
    ),
    (
        "TB805",
        "Files of this name hold passwords or tokens, and what is published cannot be taken back.",
        ".env",
        "Move the file out of the bundle. If it holds no secret, allow it by its path: --allow-secret PATH.",
    ),
    (
        "TB806",
        "The text has the form of a token or a private key. The finding gives its line and kind, never the text.",
        "adapter.py:14: a Hugging Face token",
        "Remove it, and revoke it if it was ever published. A false alarm is allowed by --allow-secret PATH.",
    ),
    (
        "TB807",
        "The bundle has a socket, a FIFO or a device, which no archive should hold.",
        "a socket that a tool left behind",
        "Remove it.",
    ),
    (
        "TB808",
        "The file exists and cannot be read, so it cannot be packed.",
        "-rw------- root root adapter.py",
        "Give yourself the right to read it.",
    ),
    (
        "TB809",
        "Other systems cannot hold the name: control characters, no UTF-8, length, or two that differ by case alone.",
        "Adapter.py beside adapter.py",
        "Rename the file.",
    ),
    (
        "TB812",
        "The file may be executed. The Hub does not keep that right.",
        "-rwxr-xr-x run.sh",
        "Start it through its interpreter: bash run.sh.",
    ),
    (
        "TB813",
        "The ignore file leaves out the metadata or the adapter's module: what is packed would not be a bundle.",
        "*.py in .bundleignore",
        "Correct the pattern.",
    ),
    (
        "TB814",
        "The folder is empty. Neither archives nor the Hub keep it.",
        "cache/",
        "Nothing, or put a file into it.",
    ),
    (
        "TB815",
        "The bundle has more files or bytes than bundles have.",
        "a checkout of tt-metal inside the bundle",
        "Leave out what is not needed (.bundleignore), or raise --max-size.",
    ),
    (
        "TB817",
        "bundle.lock.json does not describe the files that are there. It is written anew when packing.",
        "adapter.py edited after 'tt-bundle lock'",
        "Run 'tt-bundle lock'.",
    ),
    (
        "TB901",
        "A path in the archive would lead out of the folder it is unpacked to. Nothing is written.",
        "../../.bashrc",
        "Do not use the archive.",
    ),
    (
        "TB902",
        "The archive holds a link, a device or a FIFO; a bundle is regular files. Nothing is written.",
        "lib -> /usr/lib",
        "Pack the bundle with 'tt-bundle pack'.",
    ),
    (
        "TB903",
        "The archive would expand to more than a bundle has. Nothing is kept.",
        "10 KiB that expand to 10 GiB",
        "Do not use the archive, or raise --max-size if you know what it is.",
    ),
    (
        "TB904",
        "A path is there twice, or in two spellings that are one file on some systems.",
        "adapter.py and ADAPTER.py",
        "Pack the bundle with 'tt-bundle pack'.",
    ),
    (
        "TB905",
        "The archive has no vllm_metadata.json at its top or in its only folder.",
        "an archive of two bundles",
        "Pack one bundle with 'tt-bundle pack'.",
    ),
    (
        "TB906",
        "The file is no archive, or one that was cut short, is encrypted or goes on after its end.",
        "a download that broke off",
        "Get the file again.",
    ),
    (
        "TB907",
        "The file is not the one that was locked.",
        "adapter.py edited after packing",
        "Get the bundle again, or run 'tt-bundle lock' if the change is yours.",
    ),
    (
        "TB908",
        "The lock lists a file that is not there.",
        "adapter.py removed after packing",
        "Get the bundle again.",
    ),
    (
        "TB909",
        "The bundle has a file that the lock does not list: nobody vouches for it, and Python may import it.",
        "torch.py added to an installed bundle",
        "Remove the file, or run 'tt-bundle lock' if it is yours.",
    ),
    (
        "TB910",
        "bundle.lock.json is not what 'tt-bundle lock' writes.",
        '{"files": [{"path": "../x"}]}',
        "Get the bundle again, or run 'tt-bundle lock'.",
    ),
    (
        "TB911",
        "Without a lock nobody can tell whether the files are those that were published.",
        "a bundle without bundle.lock.json",
        "Have the author pack it with 'tt-bundle pack'.",
    ),
    (
        "TB951",
        "The repository has no metadata in any of the places where bundles are published.",
        "org/name with weights alone",
        "Check the name. A bundle has vllm_metadata.json at the top, in vllm_bundle/ or in vllm_models/NAME/.",
    ),
    (
        "TB952",
        "The repository has several bundles. All of them are installed.",
        "vllm_models/a and vllm_models/b",
        "Nothing, or choose one with --only NAME.",
    ),
    (
        "TB953",
        "The Hub does not show the repository: it does not exist, is private, or its terms are not accepted.",
        "org/name without a token",
        "Check the name, set HF_TOKEN, or accept the terms on the repository's page.",
    ),
    (
        "TB954",
        "The Hub does not answer, or this machine is offline. Nothing that was downloaded before is taken instead.",
        "HF_HUB_OFFLINE=1",
        "Try again when the network is there; HF_ENDPOINT names another server.",
    ),
    (
        "TB956",
        "Two repositories would be installed in one folder.",
        "a/b__c after a__b/c",
        "Remove the other bundle, or install into another folder with --into.",
    ),
    (
        "TB957",
        "The bundle has errors: a weight file, a secret, metadata that cannot be registered.",
        "tt-bundle push with .env in the folder",
        "Correct them; --no-verify pushes nevertheless, but never secrets.",
    ),
    (
        "TB959",
        "The front matter of the repository's README cannot be read, so no tags are added to it.",
        "--- without an end",
        "Correct the README's first lines.",
    ),
    (
        "TB960",
        "Somebody else pushed between reading the repository and writing to it.",
        "two pushes at once",
        "Pull, look at the change, push again.",
    ),
    (
        "TB961",
        "A repository is named by its owner, a slash and a name.",
        "tt-bundle push my-model llama",
        "Write org/name.",
    ),
    (
        "TB962",
        "The repository has scripts that install or start something. They are never run.",
        "run.sh",
        "Read them before you run them.",
    ),
)
