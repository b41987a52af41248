from vllm_tt.conformance.cases import Case, RowSpec, smallest

LARGE = Case(rows=(RowSpec(3, 70), RowSpec(1, 5), RowSpec(0, 9)), steps=4, permuted=True)


def test_a_case_reads_as_a_sentence():
    assert str(LARGE) == (
        "70 tokens in slot 3 and 5 tokens in slot 1 and 9 tokens in slot 0, 4 decode steps, pages permuted"
    )
    assert str(Case(rows=(RowSpec(0, 1),), chunk=3)) == "1 token in slot 0, chunks of 3"


def test_smaller_cases_are_smaller():
    def size(case):
        return sum(row.length * 10 + row.slot for row in case.rows), case.steps, case.permuted

    for one in LARGE.smaller():
        assert one != LARGE
        assert all(small <= large for small, large in zip(size(one), size(LARGE), strict=True))


def test_the_smallest_case_keeps_what_the_fault_needs():
    def fault(case):
        long = any(row.length > 8 for row in case.rows)
        return f"{len(case.rows)} rows" if long and len(case.rows) > 1 and case.steps >= 2 else None

    case, text = smallest(LARGE, "3 rows", fault)
    assert (str(case), text) == ("1 token in slot 1 and 9 tokens in slot 0, 2 decode steps", "2 rows")


def test_the_search_ends_when_everything_fails():
    case, _ = smallest(LARGE, "fault", lambda _case: "fault")
    assert str(case) == "1 token in slot 0"


def test_prompts_do_not_change_and_stay_in_the_vocabulary():
    prompt = LARGE.prompt(0, 50)
    assert len(prompt) == 74
    assert prompt == LARGE.prompt(0, 50)
    assert min(prompt) >= 16
    assert max(prompt) < 50
