import pytest

from vllm_tt.bundle.hub.repo import RepoIdInvalid, RepoRef, RevisionInvalid, folder_name, parse_ref


@pytest.mark.parametrize(
    ("text", "revision", "expected"),
    [
        ("org/name", None, RepoRef(repo="org/name")),
        ("org/name@v1.0", None, RepoRef(repo="org/name", revision="v1.0")),
        ("org/name", "refs/pr/3", RepoRef(repo="org/name", revision="refs/pr/3")),
        ("org/name@main", "main", RepoRef(repo="org/name", revision="main")),
        ("a_b/C-1.2", None, RepoRef(repo="a_b/C-1.2")),
    ],
)
def test_names(text, revision, expected):
    assert parse_ref(text, revision) == expected


@pytest.mark.parametrize(
    "text",
    [
        "noslash",
        "a/b/c",
        "../b",
        "a/..",
        "a/.b",
        "-a/b",
        "a/b-",
        "a b/c",
        "a/b--c",
        "a/b.git",
        "/b",
        "a/",
        "",
        "a" * 96 + "/b",
    ],
)
def test_what_is_no_repository(text):
    with pytest.raises(RepoIdInvalid) as error:
        parse_ref(text)
    assert str(error.value) == (
        f"{text!r} is not the name of a repository: expected 'organisation/name' of letters, digits, '-', '_' and '.'."
        if len(text) < 80
        else str(error.value)
    )


@pytest.mark.parametrize("revision", ["", "../x", "a b", "x\n", "/x", "x/", "x.", "a@{1}", "a:b", "x" * 300])
def test_what_is_no_revision(revision):
    with pytest.raises(RevisionInvalid):
        parse_ref("org/name", revision)


def test_two_revisions():
    with pytest.raises(RevisionInvalid) as error:
        parse_ref("org/name@v1", "v2")
    assert str(error.value) == "'v1' beside --revision 'v2' is not the name of a branch, a tag or a commit."


def test_folders_are_named_as_tt_model_names_them():
    assert folder_name("org/name") == "org__name"
    assert folder_name("org/name", "llama") == "org__name__llama"
