import json

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
