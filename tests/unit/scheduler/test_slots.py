import random

import pytest

from vllm_tt.scheduler.slots import NoFreeSlot, SlotPool, SlotPoolBroken


def test_the_lowest_free_slot_is_given_out_first():
    pool = SlotPool(3, first=8)
    assert [pool.take(r) for r in "abc"] == [8, 9, 10]
    assert pool.keep_only({"c"}) == (8, 9)
    assert pool.take("d") == 8
    assert pool["c"] == 10


def test_a_request_without_a_slot_is_not_in_the_pool():
    pool = SlotPool(2)
    pool.take("a")
    assert "a" in pool
    assert "b" not in pool
    assert len(pool) == 1


def test_a_full_pool_names_who_holds_it():
    pool = SlotPool(2)
    pool.take("a")
    pool.take("b")
    with pytest.raises(NoFreeSlot) as error:
        pool.take("c")
    assert str(error.value) == "Request 'c' was admitted although all 2 slots are held, by a, b."


def test_random_use_keeps_the_pool_whole():
    rng = random.Random(5)
    pool, running, born = SlotPool(5), [], 0
    for _ in range(500):
        running = [r for r in running if rng.random() > 0.3]
        pool.keep_only(set(running))
        while len(running) < 5 and rng.random() > 0.4:
            running.append(f"r{born}")
            pool.take(running[-1])
            born += 1
        pool.check()
        assert len(pool) == len(running)
    assert born > 100


def test_a_slot_taken_twice_by_one_request_breaks_the_pool():
    pool = SlotPool(2)
    pool.take("a")
    pool.take("a")
    with pytest.raises(SlotPoolBroken) as error:
        pool.check()
    assert str(error.value) == "Slots 0 to 1 do not add up: held {'a': 1}, free []."
