import pytest

from vllm_tt.bundle.ignore import BadPattern, is_ignored, patterns


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("*.log", ["a.log", "x/y/a.log"], ["a.logs", "log"]),
        ("/top.txt", ["top.txt"], ["x/top.txt"]),
        ("docs/*.md", ["docs/a.md"], ["docs/x/a.md", "x/docs/a.md"]),
        ("docs/**/a.md", ["docs/a.md", "docs/x/y/a.md"], ["a.md"]),
        ("docs/**", ["docs/a", "docs/x/y"], ["docs"]),
        ("**/x", ["x", "a/x", "a/b/x"], ["ax"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a-c]x", ["dx"], ["ax", "/x"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[^a]", ["^", "a"], ["b"]),
        ("\\#x", ["#x"], ["x"]),
        ("\\*", ["*"], ["x"]),
        ("a.b", ["a.b"], ["axb"]),
        ("trailing  ", ["trailing"], ["trailing  "]),
    ],
)
def test_patterns(pattern, hits, misses):
    compiled = patterns([pattern])
    assert [path for path in hits if not is_ignored(path, compiled, folder=False)] == []
    assert [path for path in misses if is_ignored(path, compiled, folder=False)] == []


def test_comments_and_blanks_are_no_patterns():
    assert patterns(["", "  ", "# comment", "/", "!"]) == ()


def test_a_slash_at_the_end_means_folders():
    compiled = patterns(["out/"])
    assert is_ignored("x/out", compiled, folder=True)
    assert not is_ignored("x/out", compiled, folder=False)


def test_the_last_match_counts():
    assert not is_ignored("a.log", patterns(["*.log", "!a.log"]), folder=False)
    assert is_ignored("a.log", patterns(["*.log", "!a.log", "a*"]), folder=False)


def test_a_range_that_runs_backwards():
    with pytest.raises(BadPattern) as raised:
        patterns(["[z-a]"])
    assert str(raised.value) == (
        "'[z-a]' is no pattern for files: it holds a range that runs backwards. Patterns are those of .gitignore."
    )
