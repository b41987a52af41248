import json
import logging
import shutil

import pytest

from vllm_tt.scheduler.step_log import StepLog


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_steps_can_be_read_while_there_are_more_and_are_added_to_what_is_there(tmp_path):
    file = tmp_path / "steps.jsonl"
    file.write_text('{"step":0}\n')
    log = StepLog(str(file), 1000)
    log.write({"step": 1, "phase": "decode"})
    log.flush()
    assert lines(file) == [{"step": 0}, {"step": 1, "phase": "decode"}]
    log.close()


def test_two_files_of_the_limit_are_kept(tmp_path):
    file = tmp_path / "steps.jsonl"
    log = StepLog(str(file), 40)
    for step in range(100, 111):
        log.write({"step": step})
    log.close()
    assert [line["step"] for line in lines(tmp_path / "steps.jsonl.1")] == [104, 105, 106, 107]
    assert [line["step"] for line in lines(file)] == [108, 109, 110]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_ends_the_log_alone(caplog):
    log = StepLog("/dev/full", 1000)
    with caplog.at_level(logging.WARNING, "vllm_tt"):
        for step in range(3):
            log.write({"step": step})
            log.flush()
        log.close()
    assert caplog.messages == [
        "The step log /dev/full ends here, as it cannot be written any more: No space left on device"
    ]


@pytest.mark.parametrize("limit", [1, 1000])
def test_a_folder_that_disappears_ends_the_log_alone(tmp_path, caplog, limit):
    folder = tmp_path / "logs"
    folder.mkdir()
    log = StepLog(str(folder / "steps.jsonl"), limit)
    shutil.rmtree(folder)
    with caplog.at_level(logging.WARNING, "vllm_tt"):
        for step in range(3):
            log.write({"step": step})
        log.close()
    ended = f"The step log {folder}/steps.jsonl ends here, as it cannot be written any more: No such file or directory"
    assert caplog.messages == ([ended] if limit == 1 else [])
