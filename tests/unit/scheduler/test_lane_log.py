from vllm_tt.scheduler.lane_log import LaneFigures, LaneLog

FIGURES = [
    LaneFigures(running=8, waiting=2, kv_cache_usage=0.413),
    LaneFigures(running=7, waiting=0, kv_cache_usage=0.2),
]


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_line_when_the_interval_has_passed(caplog):
    clock = Clock()
    told = LaneLog(10, clock)
    caplog.set_level("INFO", "vllm.tt.scheduler.lane_log")
    for seconds, moved in ((5, 1), (6, 2), (3, 4), (8, 0), (30, 0)):
        clock.now += seconds
        told.moved(moved)
        told.note(lambda: FIGURES)
    lanes = "Lanes, each with running+waiting requests and its KV cache's use: 8+2 41%, 7+0 20%; "
    assert caplog.messages == [lanes + f"{moved} waiting requests changed lanes" for moved in (3, 4, 0)]
