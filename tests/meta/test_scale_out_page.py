"""The snippets of docs/scale-out.md: complete, well-formed, and in agreement with each other and with the package."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from vllm_tt.env import VARIABLES
from vllm_tt.platform.ending import CLOSE_SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "scale-out.md").read_text(encoding="utf-8")
OF_OTHERS = {"HF_HOME", "TT_METAL_CACHE"}
"""Variables that the snippets set and others read: the Hub's client and tt-metal."""


def snippet(language):
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture(scope="module")
def objects():
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(snippet("yaml"))}


@pytest.fixture(scope="module")
def pod(objects):
    return objects["StatefulSet", "llama"]["spec"]["template"]["spec"]


def test_the_objects_find_each_other(objects):
    workload = objects["StatefulSet", "llama"]["spec"]
    assert set(objects) == {
        ("Service", "llama"),
        ("StatefulSet", "llama"),
        ("Deployment", "llama-router"),
        ("Service", "llama-router"),
    }
    for (kind, name), one in objects.items():
        spec = one["spec"]
        labels = {"app": name}
        if kind == "Service":
            assert spec["selector"] == labels
        else:
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == labels
    assert workload["serviceName"] == "llama"
    router = objects["Deployment", "llama-router"]["spec"]["template"]["spec"]["containers"][0]
    urls = [word for word in router["args"] if word.startswith("http")]
    assert urls == [f"http://llama-{number}.llama:8000" for number in range(workload["replicas"])]


def test_a_pod_has_time_to_close_its_mesh_and_no_variable_of_a_service(pod):
    (container,) = pod["containers"]
    words = container["args"]
    drain = int(words[words.index("--shutdown-timeout") + 1])
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + drain + CLOSE_SECONDS
    assert pod["enableServiceLinks"] is False
    assert {name["name"] for name in container["volumeMounts"]} == {name["name"] for name in pod["volumes"]} | {"cache"}
    assert words[words.index("--port") + 1] == str(container["ports"][0]["containerPort"])


def test_the_router_is_started_as_in_the_recipe(objects):
    router = objects["Deployment", "llama-router"]["spec"]["template"]["spec"]["containers"][0]
    recipe = re.search(r"^vllm-router (?:.*\\\n)*.*$", PAGE, re.MULTILINE)[0].replace("\\\n", " ")
    for option in ("policy", "retry-max-retries", "log-level", "cb-failure-threshold", "cb-timeout-duration-secs"):
        value = re.search(rf"--{option} (\S+)", recipe)[1]
        assert f"--{option}={value}" in router["args"]


def test_the_variables_are_those_that_somebody_reads(pod):
    named = {one["name"] for one in pod["containers"][0]["env"]}
    named |= set(re.findall(r'"([A-Z_]{5,})": ', snippet("python")))
    assert named <= {one.name for one in VARIABLES} | OF_OTHERS


def test_the_actor_compiles_and_asks_for_no_gpu():
    tree = ast.parse(snippet("python"))
    compile(tree, "docs/scale-out.md", "exec")
    options = next(
        word.value for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "ray_actor_options"
    )
    values = {key.value: value for key, value in zip(options.keys, options.values, strict=True)}
    assert values["num_gpus"].value == 0
    assert ast.literal_eval(values["resources"]) == {"tt_group": 1}
