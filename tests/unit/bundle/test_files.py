import os
import socket

import pytest

from vllm_tt.bundle.files import BundleFile, Changed, Choice, UnknownAllowance, select
from vllm_tt.bundle.findings import Severity

TOKEN = "hf_" + "a1B2" * 9


@pytest.fixture
def bundle(add):
    folder = add("mine")
    (folder / "adapter.py").write_text("class Model: pass\n")
    return folder


def write(folder, path, content=""):
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def paths(selection):
    return [file.path for file in selection.files]


def findings(selection):
    return [f"{found.severity.value} {found.code} {found.text}" for found in selection.findings]


def test_files_in_the_order_of_their_utf8_bytes(bundle):
    for name in ("z.py", "Z.txt", "sub/é.py", "sub/f.py", "sub-more.py"):
        write(bundle, name)
    found = select(bundle)
    assert paths(found) == [
        "Z.txt",
        "adapter.py",
        "sub-more.py",
        "sub/f.py",
        "sub/é.py",
        "vllm_metadata.json",
        "z.py",
    ]
    assert (found.findings, found.left_out, found.faulty) == ((), (), False)
    assert found.metadata.arch == "LlamaForCausalLM"
    assert found.size == sum(file.size for file in found.files) > 0


def test_junk_and_the_lock_stay_behind(bundle):
    for name in ("__pycache__/a.pyc", ".git/config", "old.pyc", ".DS_Store", "notes~", "bundle.lock.json"):
        write(bundle, name)
    found = select(bundle)
    assert paths(found) == ["adapter.py", "vllm_metadata.json"]
    assert found.left_out == (".DS_Store", ".git/", "__pycache__/", "notes~", "old.pyc")
    assert not found.faulty


def test_patterns_leave_files_out(bundle):
    for name in ("docs/a.md", "docs/keep.md", "big.log", "out/x"):
        write(bundle, name)
    write(bundle, ".bundleignore", "docs/*\n!docs/keep.md\nout/\n")
    found = select(bundle, Choice(exclude=("*.log",)))
    assert paths(found) == [".bundleignore", "adapter.py", "docs/keep.md", "vllm_metadata.json"]
    assert found.left_out == ("big.log", "docs/a.md", "out/")


@pytest.mark.parametrize(
    ("pattern", "path"), [("adapter.py", "adapter.py"), ("vllm_metadata.json", "vllm_metadata.json")]
)
def test_what_the_bundle_needs_cannot_be_left_out(bundle, pattern, path):
    hint = "a pattern of .bundleignore or --exclude matches it"
    found = select(bundle, Choice(exclude=(pattern,)))
    assert findings(found) == [f"error TB813 '{path}' is left out, and the bundle needs it"]
    assert found.findings[0].hint == hint


def test_a_package_that_is_left_out(add):
    folder = add("mine", main_class="tt.gen:Model")
    write(folder, "tt/__init__.py")
    write(folder, "tt/gen.py")
    assert findings(select(folder, Choice(exclude=("tt/",)))) == [
        "error TB813 'tt/__init__.py' is left out, and the bundle needs it",
        "error TB813 'tt/gen.py' is left out, and the bundle needs it",
    ]


def test_a_folder_without_metadata(tmp_path):
    assert findings(select(tmp_path)) == ["error TB004 no vllm_metadata.json in it (not a bundle folder)"]


def test_weights(bundle):
    write(bundle, "model.safetensors", b"\0" * 1500)
    write(bundle, "small.bin", b"\0" * 10)
    with write(bundle, "large.bin").open("wb") as file:
        file.truncate(5 << 20)
    assert findings(select(bundle)) == [
        "error TB804 weights: 'large.bin' (5 MiB)",
        "error TB804 weights: 'model.safetensors' (1.5 kB)",
    ]
    assert not select(bundle, Choice(include_weights=True)).faulty


@pytest.mark.parametrize("name", [".env", ".env.local", "server.pem", "conf/id_rsa", ".netrc", ".aws/config", "Token"])
def test_secrets_by_name(bundle, name):
    write(bundle, name, "x")
    found = select(bundle)
    assert findings(found) == [f"error TB805 '{name}' looks like a secret"]
    assert found.findings[0].hint == f"if it may be published: --allow-secret '{name}'"
    assert not select(bundle, Choice(allow_secrets=(name,))).faulty


def test_secrets_by_content_are_never_shown(bundle):
    write(bundle, "adapter.py", f"import os\n\nTOKEN = '{TOKEN}'\n")
    found = select(bundle)
    assert findings(found) == ["error TB806 adapter.py:3: looks like a Hugging Face token"]
    assert TOKEN not in repr(found.findings)
    assert not select(bundle, Choice(allow_secrets=("adapter.py",))).faulty


def test_a_secret_in_the_metadata(add):
    folder = add("mine", launch={"default": {"command": ["x"], "env": {"HF_TOKEN": TOKEN}}})
    assert findings(select(folder)) == ["error TB806 vllm_metadata.json:1: looks like a Hugging Face token"]


def test_an_allowance_for_a_file_that_is_not_there(bundle):
    with pytest.raises(UnknownAllowance) as raised:
        select(bundle, Choice(allow_secrets=("adaptor.py",)))
    assert str(raised.value) == (
        "--allow-secret 'adaptor.py': the bundle ships no file of that path. Give the path inside the bundle."
    )


def test_links(bundle, tmp_path):
    outside = write(tmp_path, "elsewhere/data.txt", "data")
    links = {
        "copy.py": "adapter.py",
        "dangling": "nowhere",
        "folder": str(outside.parent),
        "inner": "sub",
        "loop": "loop",
        "outside": "../elsewhere/data.txt",
    }
    write(bundle, "sub/x.py")
    for name, target in links.items():
        (bundle / name).symlink_to(target)
    found = select(bundle)
    refused = [
        "note TB801 'copy.py' -> 'adapter.py' is a link; a copy is shipped",
        "error TB802 'dangling' -> 'nowhere' is a broken link",
        f"error TB802 'folder' -> '{outside.parent}' leaves the bundle, to a folder",
        "error TB802 'inner' -> 'sub' is a link to a folder",
        "error TB802 'loop' -> 'loop' is a link to itself",
    ]
    leaving = "error TB802 'outside' -> '../elsewhere/data.txt' leaves the bundle"
    if len(str(outside.parent)) < 70:
        assert findings(found) == [*refused, leaving]
    assert "copy.py" in paths(found)
    assert "outside" not in paths(found)
    dereferenced = select(bundle, Choice(dereference=True))
    assert leaving not in findings(dereferenced)
    assert paths(dereferenced) == ["adapter.py", "copy.py", "outside", "sub/x.py", "vllm_metadata.json"]


@pytest.mark.parametrize("choice", [Choice(), Choice(dereference=True)])
def test_a_link_does_not_carry_a_secret_under_another_name(bundle, tmp_path, choice):
    write(bundle, ".env", "x")
    (bundle / "settings").symlink_to(".env")
    write(tmp_path, "home/.ssh/key", "x")
    (bundle / "host").symlink_to("../home/.ssh/key")
    codes = [(found.code, found.message.split("'")[1]) for found in select(bundle, choice).findings]
    assert ("TB805", "settings") in codes
    assert ("TB802" if not choice.dereference else "TB805", "host") in codes


def test_neither_files_nor_folders(bundle, monkeypatch):
    os.mkfifo(bundle / "pipe")
    monkeypatch.chdir(bundle)  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert findings(select(bundle)) == [
            "error TB807 'pipe' is a FIFO, not a file",
            "error TB807 'socket' is a socket, not a file",
        ]


def test_patterns_that_are_no_file(bundle):
    os.mkfifo(bundle / ".bundleignore")
    assert findings(select(bundle)) == ["error TB807 '.bundleignore' is a FIFO, not a file"]


def test_names_that_cannot_travel(bundle):
    for name in ("a\\b", "bell\a", "aux.py", "README", "readme", "Dir/x", "dir/y", "C:x"):
        write(bundle, name)
    (bundle / os.fsdecode(b"latin\xe9")).touch()
    found = findings(select(bundle))
    assert sorted(found) == [
        r"error TB809 'C:x' is absolute",
        r"error TB809 'Dir' and 'dir' are the same name on some systems",
        r"error TB809 'README' and 'readme' are the same name on some systems",
        r"error TB809 'a\\b' holds a backslash",
        r"error TB809 'bell\x07' holds a control character",
        r"error TB809 'latin\udce9' is not UTF-8",
        r"warning TB809 'aux.py' cannot be stored on Windows",
    ]


def test_empty_folders_and_executables_are_noted(bundle):
    (bundle / "empty").mkdir()
    write(bundle, "run.sh").chmod(0o755)
    found = select(bundle)
    assert findings(found) == [
        "note TB812 'run.sh' is executable, which the Hub does not keep",
        "note TB814 'empty' is an empty folder, which a bundle cannot hold",
    ]
    assert [file.executable for file in found.files] == [False, True, False]


def test_too_much(bundle, monkeypatch):
    write(bundle, "big.txt", b"x" * 2000)
    found = select(bundle, Choice(max_size=1 << 10))
    assert findings(found) == ["error TB815 2.1 kB; the limit is 1.0 kB"]
    assert found.findings[0].hint == "--max-size raises it"
    monkeypatch.setattr("vllm_tt.bundle.files.MAX_FILES", 2)
    assert findings(select(bundle)) == ["error TB815 3 files; the limit is 2"]


def test_unreadable_files(bundle, unprivileged):
    (bundle / "private.py").touch(mode=0)
    (bundle / "closed").mkdir(mode=0)
    with unprivileged():
        found = select(bundle)
    (bundle / "closed").chmod(0o700)
    assert sorted(findings(found)) == [
        "error TB808 cannot read 'closed': Permission denied",
        "error TB808 cannot read 'private.py': Permission denied",
    ]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        select(tmp_path / "no")


@pytest.mark.parametrize("change", ["append", "replace", "remove", "link"])
def test_a_file_that_changes_is_not_shipped(bundle, tmp_path, change):
    (file,) = [one for one in select(bundle).files if one.path == "adapter.py"]
    place = bundle / "adapter.py"
    if change == "append":
        place.write_text("more than before\n")
    else:
        place.unlink()
    if change == "replace":
        place.write_text("class Model: pass\n")
    if change == "link":
        place.symlink_to(write(tmp_path, "other.py", "class Model: pass\n"))
    with pytest.raises((Changed, OSError)) as raised, file.open() as opened:
        opened.read()
    if change != "link":
        assert str(raised.value) == (
            "'adapter.py' changed while being read. Nothing was written; try again when nothing writes to the folder."
        )


def test_a_file_that_grows_while_it_is_read(bundle):
    (file,) = [one for one in select(bundle).files if one.path == "adapter.py"]
    assert isinstance(file, BundleFile)

    def grow():
        with file.open() as opened:
            (bundle / "adapter.py").write_text("longer than it was before\n")
            opened.read()

    with pytest.raises(Changed):
        grow()


def test_a_linked_bundle_folder_is_the_folder(bundle, tmp_path):
    (tmp_path / "link").symlink_to(bundle)
    found = select(tmp_path / "link")
    assert found.folder == bundle
    assert all(found.severity is not Severity.ERROR for found in found.findings)
