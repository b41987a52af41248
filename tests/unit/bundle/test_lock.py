import hashlib
import json
import os
import shutil
from dataclasses import replace

import pytest

from vllm_tt import __version__
from vllm_tt.bundle import lock
from vllm_tt.bundle.files import LOCK_NAME, select
from vllm_tt.bundle.findings import Finding


@pytest.fixture
def bundle(add):
    folder = add("mine", name="mine", version="1.0")
    (folder / "sub").mkdir()
    (folder / "adapter.py").write_text("class Model: pass\n")
    (folder / "sub" / "é.py").write_text("")
    (folder / LOCK_NAME).write_bytes(lock.make(select(folder)).to_bytes())
    return folder


def findings(found):
    return [f"{one.severity.value} {one.code} {one.text}" for one in found]


def test_the_lock_of_a_bundle(bundle):
    made = lock.make(select(bundle))
    text = (bundle / "vllm_metadata.json").read_bytes()
    digests = {
        "adapter.py": hashlib.sha256(b"class Model: pass\n").hexdigest(),
        "sub/é.py": hashlib.sha256(b"").hexdigest(),
        "vllm_metadata.json": hashlib.sha256(text).hexdigest(),
    }
    tree = "".join(f"{digest}  {path}\n" for path, digest in digests.items()).encode()
    assert json.loads(made.to_bytes()) == {
        "lock_version": 1,
        "name": "mine",
        "version": "1.0",
        "created_by": f"vllm-tt {__version__}",
        "files": [
            {"path": path, "size": (bundle / path).stat().st_size, "sha256": digest} for path, digest in digests.items()
        ],
        "tree_sha256": hashlib.sha256(tree).hexdigest(),
    }


def test_reading_is_the_inverse_of_writing(bundle):
    made = lock.make(select(bundle))
    assert lock.parse(made.to_bytes()) == made
    assert lock.parse(replace(made, name=None, version=None).to_bytes()) == replace(made, name=None, version=None)


def test_progress_is_told_every_byte(bundle):
    told = []
    lock.make(select(bundle), told.append)
    assert sum(told) == select(bundle).size


def test_a_good_folder(bundle):
    assert lock.verify(bundle, require_lock=True, strict=True) == ()
    assert lock.verify(bundle, in_use=False) == ()


def test_what_differs(bundle):
    (bundle / "adapter.py").write_text("class Model: fail\n")
    (bundle / "sub" / "é.py").unlink()
    (bundle / "torch.py").touch()
    (bundle / "sub" / "link").symlink_to("../adapter.py")
    assert findings(lock.verify(bundle)) == [
        "error TB907 'adapter.py' differs from bundle.lock.json",
        "error TB908 'sub/é.py' is missing; bundle.lock.json lists it",
        "error TB909 'torch.py' is not in bundle.lock.json",
        "error TB909 'sub/link' is not in bundle.lock.json",
    ]


def test_metadata_that_was_written_anew(bundle):
    file = bundle / "vllm_metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=4))
    (found,) = lock.verify(bundle)
    assert findings([found]) == ["warning TB907 'vllm_metadata.json' differs from bundle.lock.json"]
    assert found.hint == "another tool may have written it anew"
    assert findings(lock.verify(bundle, strict=True)) == [
        "error TB907 'vllm_metadata.json' differs from bundle.lock.json"
    ]


@pytest.mark.parametrize(("required", "severity"), [(False, "warning"), (True, "error")])
def test_no_lock(bundle, required, severity):
    (bundle / LOCK_NAME).unlink()
    expected = [f"{severity} TB911 no bundle.lock.json: contents not verified"]
    assert findings(lock.verify(bundle, require_lock=required)) == expected


def test_what_appears_in_a_folder_in_use_is_forgiven_there_alone(bundle):
    for path in (".git/config", "__pycache__/adapter.cpython-312.pyc", "__pycache__/torch.cpython-312.pyc"):
        (bundle / path).parent.mkdir(exist_ok=True)
        (bundle / path).touch()
    stranger = "error TB909 '__pycache__/torch.cpython-312.pyc' is not in bundle.lock.json"
    assert findings(lock.verify(bundle)) == [stranger]
    assert findings(lock.verify(bundle, in_use=False)) == [
        "error TB909 '.git/config' is not in bundle.lock.json",
        "error TB909 '__pycache__/adapter.cpython-312.pyc' is not in bundle.lock.json",
        stranger,
    ]


def test_compiled_files_beside_modules_are_strangers(bundle):
    (bundle / "torch.pyc").touch()
    shutil.copy(bundle / "adapter.py", bundle / "notes~")
    assert findings(lock.verify(bundle)) == [
        "error TB909 'notes~' is not in bundle.lock.json",
        "error TB909 'torch.pyc' is not in bundle.lock.json",
    ]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_no_file(bundle, make):
    (bundle / LOCK_NAME).unlink()
    make(bundle / LOCK_NAME)
    assert findings(lock.verify(bundle)) == ["error TB910 bundle.lock.json is not a regular file"]


def edited(bundle, **changes):
    root = json.loads((bundle / LOCK_NAME).read_bytes())
    return json.dumps({**root, **changes}).encode()


ENTRY = {"path": "a", "size": 0, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[]", "is not a lock: it lacks keys of one"),
        (b'{"files": []}', "is not a lock: it lacks keys of one"),
        (b'{"files": [], "files": []}', "has a key twice"),
        (b" " * (8 << 20) + b" ", "has 8388609 bytes; the limit is 8388608"),
        ({"lock_version": 2}, "has lock_version 2; this tool knows 1"),
        ({"lock_version": True}, "has lock_version True; this tool knows 1"),
        ({"files": {}}, "lists something that is not a file with path, size and sha256"),
        ({"files": [{**ENTRY, "size": "0"}]}, "lists something that is not a file with path, size and sha256"),
        ({"files": [{**ENTRY, "sha256": "0"}]}, "lists something that is not a file with path, size and sha256"),
        ({"files": [{**ENTRY, "path": "/etc/x"}]}, "lists '/etc/x', which is absolute"),
        ({"files": [{**ENTRY, "path": "../x"}]}, "lists '../x', which has an empty, '.' or '..' part"),
        ({"files": [{**ENTRY, "path": LOCK_NAME}]}, "lists itself"),
        ({"files": [ENTRY, ENTRY]}, "lists a file twice, or not in order"),
        ({"files": [{**ENTRY, "path": "b"}, ENTRY]}, "lists a file twice, or not in order"),
        ({"name": 3}, "has a name, version or created_by that is not text"),
        ({"tree_sha256": "0" * 64}, "has a tree_sha256 that is not that of its files"),
    ],
)
def test_malformed_locks(bundle, data, fault):
    data = edited(bundle, **data) if isinstance(data, dict) else data
    found = lock.parse(data)
    assert isinstance(found, Finding)
    assert findings([found]) == [f"error TB910 bundle.lock.json {fault}"]
    (bundle / LOCK_NAME).write_bytes(data)
    assert lock.verify(bundle) == (found,)
