import click
import pytest

from vllm_tt.cli import progress
from vllm_tt.cli.progress import meter
from vllm_tt.cli.report import Session


@pytest.fixture
def context():
    with click.Context(click.Command("x"), obj=Session()) as context:
        yield context


@pytest.fixture
def clock(monkeypatch):
    """A second passes each time someone looks."""
    seconds = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))


def transfer(**options):
    with meter("Fetching x", **options) as shown:
        begun = shown.begin(1000)
        for _ in range(10):
            begun.advance(100)


def test_lines_where_there_is_no_terminal(context, clock, capsys):
    transfer()
    assert capsys.readouterr().err.splitlines()[:2] == [
        "Fetching x: 10 % of 1.0 kB",
        "Fetching x: 20 % of 1.0 kB",
    ]


def test_no_lines_for_what_is_done_in_a_moment(context, capsys):
    transfer()
    assert capsys.readouterr() == ("", "")


def test_nothing_when_hidden_and_with_json(context, clock, capsys):
    transfer(hidden=True)
    context.obj.json = True
    transfer()
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(context, capsys, monkeypatch):
    monkeypatch.setattr(progress, "wants_bars", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    transfer()
    out, err = capsys.readouterr()
    assert out == ""
    assert "Fetching x" in err


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert not progress.wants_bars()
