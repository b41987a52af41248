import pytest

from vllm_tt.bundle.secrets import named_like_a_secret, secrets_in

# Put together here, so that no text of this file is one.
SECRETS = {
    "a Hugging Face token": "hf_" + "aB3" * 11,
    "a GitHub token": "ghp_" + "a1" * 18,
    "a GitLab token": "glpat-" + "a1" * 10,
    "an AWS access key": "AKIA" + "A1" * 8,
    "a Google API key": "AIza" + "a" * 35,
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "a Slack token": "xoxb-" + "12345-" * 3,
    "an API key": "sk-" + "proj-" + "a1" * 15,
    "a package index token": "pypi-" + "A1" * 30,
    "an npm token": "npm_" + "a1" * 18,
}


@pytest.mark.parametrize("kind", SECRETS)
def test_contents(kind):
    assert list(secrets_in(f"first\nx = '{SECRETS[kind]}'\n".encode())) == [(2, kind)]


@pytest.mark.parametrize(
    "text",
    [
        "hf_short",
        "self.hf_config_of_the_model_that_is_long",
        "task-force-with-a-very-long-name-here",
        "AKIA",
        "",
        "sk-",
    ],
)
def test_ordinary_text(text):
    assert list(secrets_in(text.encode())) == []


def test_binary_files_are_not_text():
    assert list(secrets_in(b"\0" + SECRETS["an npm token"].encode())) == []


def test_all_secrets_in_order():
    text = "\n".join([SECRETS["an npm token"], "", SECRETS["an AWS access key"]])
    assert list(secrets_in(text.encode())) == [(1, "an npm token"), (3, "an AWS access key")]


@pytest.mark.parametrize(
    "path", [".env", "a/.ENV.prod", "x.pem", "id_rsa.pub", ".ssh/config", ".huggingface/x", "credentials.json", "token"]
)
def test_names(path):
    assert named_like_a_secret(path)


@pytest.mark.parametrize("path", ["env.py", "tokenizer.json", "tokens", "adapter.py", "keys.py", "ssh/config"])
def test_ordinary_names(path):
    assert not named_like_a_secret(path)
