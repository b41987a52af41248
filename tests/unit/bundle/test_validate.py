import json
import os
import re
from pathlib import Path

import pytest
from bundle_cases import INVALID, ROOT, VALID, described, expected, expected_warning, name

from vllm_tt.bundle.discover import discover
from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.reading import Bundle, Skipped, load
from vllm_tt.bundle.requires import Installed, check_requires
from vllm_tt.bundle.validate import Depth, chosen, validate, validate_all

DECIDES = ("TB0", "TB1", "TB2")
ADAPTER = (ROOT / "invalid/unknown-key/adapter.py").read_text()


def texts(report, *, ignore=("TB213",)):
    return [f"{one.severity.value} {one.code} {one.message}" for one in chosen(report.findings, ignore=ignore)]


def blocks(lines):
    """Findings with their hints, in any order; the reader does not look for the lines of requirements."""
    joined = "\n".join(lines).replace("\n  hint:", " hint:")
    return sorted(re.sub(r"^(TB7\d\d \w+ \w+) \S+", r"\1", line) for line in joined.split("\n"))


def errors(report):
    return [one.code for one in report.findings if one.severity is Severity.ERROR]


@pytest.fixture
def bundle(tmp_path):
    def make(folder="model", *, adapter=ADAPTER, files=None, **fields):
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        metadata = {"arch": "LlamaForCausalLM", "main_class": "adapter:Model", **fields}
        (place / FILE_NAME).write_text(json.dumps(metadata))
        (place / "adapter.py").write_text(adapter)
        for path, text in (files or {}).items():
            (place / path).write_text(text)
        return place

    return make


def test_there_are_many_cases():
    assert len(INVALID) >= 80
    assert len(VALID) >= 20


@pytest.mark.parametrize("case", VALID + INVALID, ids=name)
def test_each_case_yields_what_the_reader_finds_and_more(case):
    report = validate(case)
    lines = expected(case) + expected(case, "validate.txt")
    ignore = () if any(line.startswith("TB213") for line in lines) else ("TB213",)
    assert blocks(described(chosen(report.findings, ignore=ignore))) == blocks(lines)


@pytest.mark.parametrize("case", VALID, ids=name)
def test_valid_cases_have_no_errors(case):
    assert errors(validate(case)) == []


@pytest.mark.parametrize("case", INVALID, ids=name)
def test_invalid_cases_have_findings(case):
    assert expected(case) + expected(case, "validate.txt") != []


@pytest.mark.parametrize("case", VALID + INVALID, ids=name)
def test_the_reader_says_exactly_this(case):
    found = load(case)
    if isinstance(found, Bundle):
        unmet = [one for one in check_requires(found.metadata.requires, Installed()) if one.reader.value == "skip"]
        found = Skipped(folder=case, finding=unmet[0]) if unmet else found
    warning = found.warning if isinstance(found, Skipped) else None
    assert warning == expected_warning(case)


@pytest.mark.parametrize("kind", ["valid", "invalid"])
def test_registered_if_and_only_if_there_is_no_error_of_the_classes_that_decide(kind):
    found = discover(str(ROOT / kind), ignore_requires=True)
    registered = {bundle.folder.name for bundle in found.bundles}
    faultless = {
        case.name
        for case in (ROOT / kind).iterdir()
        if not any(code.startswith(DECIDES) for code in errors(validate(case)))
    }
    assert registered == faultless
    skipped = {one.folder.name for one in found.skipped}
    assert registered | skipped == {case.name for case in (ROOT / kind).iterdir()}


def test_places_outside_the_data(bundle, tmp_path):
    assert texts(validate(bundle(".hidden"))) == ["error TB006 hidden folders are not registered"]
    assert texts(validate(bundle("my model.v2"))) == [
        "note TB007 folder name 'my model.v2' is not usable as an archive or module name; give the metadata a 'name'"
    ]
    assert texts(validate(bundle("ünï", name="uni"))) == [
        (
            "note TB007 folder name 'ünï' is not usable as an archive or module name; "
            "'uni', the 'name' in the metadata, is used"
        )
    ]
    (tmp_path / "link").symlink_to(bundle("real"))
    assert texts(validate(tmp_path / "link")) == [f"note TB008 {tmp_path}/link is a symbolic link -> '{tmp_path}/real'"]


def test_what_is_no_bundle(tmp_path):
    assert texts(validate(tmp_path / "gone")) == [f"error TB001 {tmp_path}/gone is not a directory"]
    (tmp_path / "dangling").symlink_to("nowhere")
    assert texts(validate(tmp_path / "dangling")) == [
        f"error TB009 {tmp_path}/dangling is a broken symbolic link -> 'nowhere'"
    ]
    (tmp_path / "loop").symlink_to("loop")
    assert texts(validate(tmp_path / "loop")) == [f"error TB009 {tmp_path}/loop is a broken symbolic link -> 'loop'"]
    (tmp_path / "empty").mkdir()
    assert texts(validate(tmp_path / "empty")) == ["error TB004 no vllm_metadata.json in 'empty' (not a bundle folder)"]


@pytest.mark.parametrize("wrong", ["VLLM_Metadata.json", "vllm-metadata.json", "vllm_metadata.jsn", "metadata.json"])
def test_misnamed_metadata(bundle, wrong):
    folder = bundle()
    (folder / FILE_NAME).rename(folder / wrong)
    message = f"error TB005 found '{wrong}'; the name must be exactly vllm_metadata.json"
    assert texts(validate(folder)) == [message]


def test_another_metadata_file_is_none_of_ours(bundle):
    folder = bundle()
    (folder / FILE_NAME).unlink()
    (folder / "metadata.json").write_text('{"title": "a dataset"}')
    assert texts(validate(folder))[0].startswith("error TB004")


@pytest.mark.timeout(10)
def test_a_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / FILE_NAME)
    assert texts(validate(tmp_path)) == ["error TB011 vllm_metadata.json is a FIFO, not a regular file"]


def test_an_unreadable_file(bundle, unprivileged):
    folder = bundle()
    (folder / FILE_NAME).chmod(0)
    with unprivileged():
        assert texts(validate(folder)) == ["error TB010 cannot read vllm_metadata.json: Permission denied"]


def test_this_installation_as_the_judge(bundle):
    needs = {"vllm-tt": ">=9999", "packages": ["no-such-package-for-tt"]}
    folder = bundle(main_class="models.demos.generator:Model", requires=needs)
    codes = ("TB702", "TB704", "TB302")
    for installed, severity in ((False, "warning"), (True, "error")):
        report = validate(folder, Depth(installed=installed))
        assert [one.code for one in report.findings if one.severity.value == severity] == list(codes)


def test_a_class_that_tt_metal_is_known_to_have(bundle):
    path = "models.tt_transformers.tt.generator_vllm:LlamaForCausalLM"
    folder = bundle(main_class=path)
    depths = (Depth(), Depth(generators=frozenset({path})), Depth(generators=frozenset({path}), installed=True))
    found = [one for depth in depths for one in validate(folder, depth).findings if one.code == "TB302"]
    assert [one.severity.value for one in found] == ["warning", "note", "error"]


def test_requirements_are_located(bundle):
    report = validate(bundle(requires={"vllm": ">>1"}))
    assert [(one.code, one.line) for one in report.findings if one.code == "TB701"] == [("TB701", 1)]


def test_a_built_in_model_replaced(bundle):
    report = validate(bundle(), Depth(builtins={"TTLlamaForCausalLM": "models.x:Llama"}))
    assert texts(report) == ["note TB602 overrides the built-in TTLlamaForCausalLM -> models.x:Llama"]


def test_bundles_against_one_another(bundle, tmp_path):
    bundle("a", name="one", adapter="import rope_helper\n\n" + ADAPTER, files={"rope_helper.py": ""})
    bundle("b", name="one", arch="TTLlamaForCausalLM", architectures=["TTLlamaForCausalLM", "Qwen3ForCausalLM"])
    bundle("c", arch="MistralForCausalLM", adapter="import rope_helper\n\n" + ADAPTER, files={"rope_helper.py": ""})
    reports = {one.folder.name: texts(one, ignore=("TB213", "TB204")) for one in validate_all(tmp_path)}
    assert reports["a"] == []
    assert reports["b"] == [
        "error TB601 TTLlamaForCausalLM is already provided by bundle 'a', which is served instead",
        "warning TB603 bundle 'a' has the name 'one' too",
        "note TB306 module 'adapter' is also provided by bundle 'a'; each gets its own here, not in other plugins",
    ]
    assert reports["c"] == [
        "note TB306 module 'adapter' is also provided by bundle 'a'; each gets its own here, not in other plugins",
        "note TB307 helper module 'rope_helper' is also in bundle 'a'; a process that loads both has the first one's",
    ]
    assert all(texts(one, ignore=("TB213", "TB204")) == [] for one in validate_all(tmp_path, together=False))


def test_a_folder_of_bundles(bundle, tmp_path):
    bundle("folder/.staging")
    bundle("folder/good")
    (tmp_path / "folder/else").mkdir()
    (tmp_path / "folder/vllm_metadata.json").write_text("{}")
    reports = validate_all(tmp_path / "folder")
    assert [(one.folder.name, one.is_bundle, texts(one)) for one in reports] == [
        (
            "folder",
            False,
            [
                (
                    f"error TB003 EXTRA_MODELS_DIR={tmp_path}/folder itself looks like a bundle; "
                    f"point it at the parent directory ('{tmp_path}')"
                )
            ],
        ),
        (".staging", False, [f"warning TB006 ignoring hidden folder {tmp_path}/folder/.staging"]),
        ("good", True, []),
    ]


def test_a_relative_folder_gives_relative_paths(bundle, tmp_path, monkeypatch):
    bundle("folder/good")
    monkeypatch.chdir(tmp_path)
    assert [one.folder for one in validate_all(Path("folder"))] == [Path("folder/good")]
    assert texts(validate(Path("folder/good"))) == []
    monkeypatch.chdir(tmp_path / "folder/good")
    assert texts(validate(Path())) == []
    (tmp_path / "folder/good/tt").mkdir()
    monkeypatch.chdir("tt")
    assert texts(validate(Path(".."))) == []
    assert texts(validate(Path())) == ["error TB004 no vllm_metadata.json in 'tt' (not a bundle folder)"]


def test_choosing_by_the_beginning_of_codes(bundle):
    found = validate(bundle(other=1, homepage=2)).findings
    assert [one.code for one in found] == ["TB210", "TB202", "TB213"]
    assert [one.code for one in chosen(found, ["TB21"])] == ["TB210", "TB213"]
    assert [one.code for one in chosen(found, ["TB2"], ["TB213", "TB202"])] == ["TB210"]
    assert chosen(found, ["TB3"]) == ()


def test_shipped_bundles_have_neither_errors_nor_warnings():
    reports = validate_all(ROOT.parents[1] / "bundles", together=False)
    assert reports
    for report in reports:
        assert {one.severity for one in report.findings} <= {Severity.NOTE}, texts(report)
