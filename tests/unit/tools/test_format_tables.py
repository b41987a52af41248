from tools.format_tables import PAGE, TABLES, page


def test_the_page_has_what_the_code_says():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run python tools/format_tables.py"


def test_every_table_has_rows():
    for name, table in TABLES.items():
        assert len(list(table())) > 10, name


def test_cells_cannot_break_a_table():
    for table in TABLES.values():
        assert len({line.replace("\\|", "").count("|") for line in table()}) == 1
