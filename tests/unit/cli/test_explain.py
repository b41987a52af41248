import json

from click.testing import CliRunner

from vllm_tt.bundle.findings import RULES
from vllm_tt.cli import main


def run(*arguments):
    return CliRunner().invoke(main, ["explain", *arguments])


def test_cause_example_and_fix():
    assert run("tb203").stdout == (
        "TB203: not an identifier (error)\n"
        "  Cause:   An architecture is the name of a class, as in a checkpoint's config.json.\n"
        '  Example: {"arch": "meta-llama/Llama-3.1-8B"}\n'
        '  Fix:     Write the name in "architectures" of config.json: "LlamaForCausalLM".\n'
        "  Serving: the bundle is not registered.\n"
    )


def test_several_codes():
    assert run("TB101", "TB102").stdout.count("Cause:") == 2


def test_all_codes():
    lines = run().stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)
    assert lines[0] == "TB001  error    the folder of bundles is not a folder"


def test_a_document():
    (record,) = json.loads(run("TB203", "--json").stdout)["codes"]
    assert (record["code"], record["severity"], record["reader"]) == ("TB203", "error", "skip")
    assert sorted(record) == ["cause", "code", "example", "fix", "reader", "severity", "title"]


def test_an_unknown_code():
    result = run("TB2033")
    assert result.exit_code == 2
    assert result.stderr == (
        "tt-bundle: error: 'TB2033' is not a code of tt-bundle. Did you mean TB203 or TB220 or TB213? "
        "'tt-bundle explain' lists them all.\n"
    )
