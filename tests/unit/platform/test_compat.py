import signal

from vllm.v1.engine import core

from vllm_tt.platform import compat


def test_what_an_ending_engine_gives_back_to_the_system_is_ignored(monkeypatch):
    monkeypatch.setattr(core, "signal", signal)
    before = signal.getsignal(signal.SIGUSR1)
    compat.outlive_repeated_signals()
    compat.outlive_repeated_signals()
    try:
        core.signal.signal(core.signal.SIGUSR1, print)
        assert signal.getsignal(signal.SIGUSR1) is print
        core.signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert core.signal.Signals(signal.SIGTERM).name == "SIGTERM"
