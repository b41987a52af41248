import pytest
from tools.format_tables import DOCS, PAGES, page

TABLES = {name: table for tables in PAGES.values() for name, table in tables.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_what_the_code_says(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    assert page(name, text) == text, "run python tools/format_tables.py"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_rows(name):
    assert len(list(TABLES[name]())) > 10


def test_cells_cannot_break_a_table():
    for table in TABLES.values():
        assert len({line.replace("\\|", "").count("|") for line in table()}) == 1
