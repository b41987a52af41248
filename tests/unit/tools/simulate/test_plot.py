import numpy as np
from tools.simulate.plot import draw, shares
from tools.simulate.record import Timeline, Times


def timeline(*steps):
    """From (start, end, decode) in seconds."""
    made = Timeline()
    for start, end, decode in steps:
        times = Times(idle=0, start=round(start * 1e9), switch=0, end=round(end * 1e9))
        made.add(times, decode=decode, running=1, waiting=0)
    return made


def test_shares_of_intervals():
    steps = timeline((0, 0.5, False), (0.5, 1.5, True), (2, 2.25, False), (2.25, 4, True))
    edges = np.arange(5.0)
    assert shares(steps, edges, decode=False).tolist() == [0.5, 0, 0.25, 0]
    assert shares(steps, edges, decode=True).tolist() == [0.5, 0.5, 0.75, 1]


def test_a_phase_that_never_ran():
    assert shares(timeline((0, 1, False)), np.arange(3.0), decode=True).tolist() == [0, 0]


def test_few_steps_and_many_are_drawn(run, job, tmp_path):
    few = run([job("a", 0, 100, 20)])
    many = run([job("a", 0, 100, 600), job("b", 1, 700, 30)])
    for name, results in {"few": [few], "many": [few, many], "one token": [run([job("a", 0, 100, 1)])]}.items():
        draw(results, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    draw([many], tmp_path / "window", begin=1.0, end=1.2)
    assert (tmp_path / "window").stat().st_size > 10_000
