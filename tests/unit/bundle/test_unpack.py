import io
import json

import pytest
from archives import METADATA, archive, bundle, everything_below, member

from vllm_tt.bundle.discover import discover
from vllm_tt.bundle.files import LOCK_NAME, select
from vllm_tt.bundle.install import DestinationExists
from vllm_tt.bundle.pack import pack
from vllm_tt.bundle.unpack import BadName, Demands, unpack, verify_archive, verify_folder

ANY = Demands()


@pytest.fixture
def into(tmp_path):
    place = tmp_path / "bundles"
    place.mkdir()
    return place


@pytest.fixture
def packed(add):
    folder = add("source/mine", name="mine", version="1.0")
    (folder / "adapter.py").write_text("class Model: pass\n")
    out = io.BytesIO()
    pack(select(folder), out)
    return out.getvalue()


def run(data, into, demands=ANY, **options):
    return unpack(io.BytesIO(data), into, demands, **options)


def findings(checked):
    return [f"{found.severity.value} {found.code} {found.text}" for found in checked.findings]


def test_a_packed_bundle(packed, into, tmp_path):
    done = run(packed, into, Demands(require_lock=True, strict=True))
    assert done.folder == into / "mine"
    assert done.checked.good
    assert done.checked.findings == ()
    assert (done.checked.files, done.checked.metadata.name) == (2, "mine")
    lock = into / "mine" / LOCK_NAME
    assert done.checked.lock.tree_sha256 == json.loads(lock.read_bytes())["tree_sha256"]
    assert verify_folder(into / "mine", Demands(require_lock=True)).good
    lock.unlink()
    assert everything_below(into / "mine") == everything_below(tmp_path / "source" / "mine")
    assert [found.name for found in discover(str(into)).bundles] == ["mine"]


@pytest.mark.parametrize(
    ("top", "fields", "stem", "name"),
    [
        ("inner/", {"name": "nice"}, "file-1.tar.gz", "nice"),
        ("inner/", {}, "file.tar.gz", "file"),
        ("inner/", {"version": "1.0"}, "file-1.0.tar.gz", "file"),
        ("inner/", {}, "file.tgz", "file"),
        ("inner/", {}, "", "inner"),
        ("inner/", {}, ".hidden.tar.gz", "inner"),
        ("", {}, "", "LlamaForCausalLM"),
        ("", {"name": "../evil"}, "", "LlamaForCausalLM"),
    ],
)
def test_what_the_folder_is_called(into, top, fields, stem, name):
    data = archive(member(f"{top}vllm_metadata.json", json.dumps({**json.loads(METADATA), **fields}).encode()))
    assert run(data, into, stem=stem).folder == into / name
    assert [path.name for path in into.iterdir()] == [name]


def test_a_name_of_ones_choice(packed, into):
    assert run(packed, into, name="other").folder == into / "other"


@pytest.mark.parametrize(
    ("name", "fault"),
    [("..", "starts with a dot"), ("a/b", "is not one name"), ("", "is not one name"), ("a\\b", "holds a backslash")],
)
def test_names_that_cannot_be(packed, into, name, fault):
    with pytest.raises(BadName) as raised:
        run(packed, into, name=name)
    shown = repr(name)
    assert str(raised.value) == (
        f"{shown} cannot be the name of a bundle's folder: it {fault}. Choose another one with --name."
    )


def test_an_existing_one_stays_unless_forced(packed, into):
    (into / "mine").mkdir()
    (into / "mine" / "own.txt").touch()
    with pytest.raises(DestinationExists) as raised:
        run(packed, into)
    assert str(raised.value) == "'mine' exists; use --force to replace it"
    assert [path.name for path in into.rglob("*")] == ["mine", "own.txt"]
    run(packed, into, force=True)
    assert sorted(path.name for path in into.rglob("*")) == ["adapter.py", LOCK_NAME, "mine", "vllm_metadata.json"]


def test_the_folder_of_bundles_is_made_for_a_good_archive_alone(packed, tmp_path):
    assert run(b"junk", tmp_path / "new").folder is None
    assert not (tmp_path / "new").exists()
    assert run(packed, tmp_path / "new").folder == tmp_path / "new" / "mine"


LOCKED = json.dumps({"lock_version": 1}).encode()


@pytest.mark.parametrize(
    ("data", "demands", "found"),
    [
        (bundle(), Demands(require_lock=True), "error TB911 no bundle.lock.json: contents not verified"),
        (
            bundle(member("mine/bundle.lock.json", LOCKED)),
            ANY,
            "error TB910 bundle.lock.json is not a lock: it lacks keys of one",
        ),
        (
            bundle(member("mine/x", type=b"2", linkname="/etc")),
            ANY,
            "error TB902 'mine/x' is a symbolic link; an archive of a bundle holds files alone",
        ),
        (bundle(), Demands(max_size=10), "error TB903 archive expands to more than 10 bytes"),
        (
            archive(member("mine/vllm_metadata.json", b"[]")),
            ANY,
            "error TB105 must be a JSON object, got a list",
        ),
    ],
)
def test_refused_with_nothing_written(into, data, demands, found):
    done = run(data, into, demands)
    assert (done.folder, done.checked.good) == (None, False)
    assert findings(done.checked)[0] == found
    assert list(into.iterdir()) == []
    assert findings(verify_archive(io.BytesIO(data), demands)) == findings(done.checked)


def test_without_a_lock_there_is_a_warning(into):
    done = run(bundle(), into)
    assert done.folder == into / "mine"
    assert findings(done.checked) == ["warning TB911 no bundle.lock.json: contents not verified"]


def repacked(packed, into, change):
    """The archive again after ``change`` to its unpacked folder, with the old lock."""
    folder = run(packed, into, name="repacked").folder
    change(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return archive(*(member(f"mine/{path.relative_to(folder)}", path.read_bytes()) for path in files))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda folder: (folder / "torch.py").touch(), "'torch.py' is not in bundle.lock.json"),
        (lambda folder: (folder / "adapter.py").write_text("evil"), "'adapter.py' differs from bundle.lock.json"),
        (lambda folder: (folder / "adapter.py").unlink(), "'adapter.py' is missing; bundle.lock.json lists it"),
        (lambda folder: (folder / "x.pyc").touch(), "'x.pyc' is not in bundle.lock.json"),
    ],
)
def test_an_archive_that_differs_from_its_lock(packed, tmp_path, into, change, found):
    data = repacked(packed, tmp_path / "room", change)
    done = run(data, into)
    assert [one.message for one in done.checked.findings] == [found]
    assert (done.folder, list(into.iterdir())) == (None, [])
    assert [one.message for one in verify_folder(tmp_path / "room" / "repacked", ANY).findings] == [found]


def test_metadata_written_anew_is_a_warning(packed, tmp_path, into):
    def rewrite(folder):
        file = folder / "vllm_metadata.json"
        file.write_text(json.dumps(json.loads(file.read_text()), indent=3))

    data = repacked(packed, tmp_path / "room", rewrite)
    warning = "TB907 'vllm_metadata.json' differs from bundle.lock.json"
    assert findings(run(data, into).checked) == [f"warning {warning}"]
    assert findings(run(data, into, Demands(strict=True), name="x").checked) == [f"error {warning}"]


def test_a_folder_that_is_no_bundle(tmp_path):
    checked = verify_folder(tmp_path, ANY)
    assert findings(checked) == [
        "error TB004 no vllm_metadata.json in it (not a bundle folder)",
        "warning TB911 no bundle.lock.json: contents not verified",
    ]
    assert not checked.good
