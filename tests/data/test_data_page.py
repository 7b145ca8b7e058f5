from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import vfl_node.crypto.filters.values
import vfl_node.data
from vfl_node.data.missing_words import ABSENT, MISSING, MISSING_LABELS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
EXAMPLE = REFERENCE / "model-input.md"
PAGES = [ROOT / "docs" / "guides" / f"{name}.md" for name in ("give-tables", "table-files", "check-a-table")]
PAGES += [REFERENCE / f"{name}.md" for name in ("columns", "special-columns", "model-input", "table-errors")]


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testfile(str(EXAMPLE), module_relative=False, encoding="utf-8")
    assert attempted > 5
    assert failed == 0


def test_the_pages_explain_exactly_the_codes_of_a_table_that_cannot_be_used() -> None:
    folder = Path(vfl_node.data.__path__[0])
    names = (
        "named",
        "text_columns",
        "identifiers",
        "labels",
        "reading",
        "tables",
        "levels",
        "design",
        "images",
        "columns_apart",
    )
    names += ("row_columns", "lists", "feature_columns", "aggregate", "record_cells", "id_columns")
    sources = [*(folder / "readers").glob("*.py"), *(folder / f"{name}.py" for name in names)]
    raised = {code for source in sources for code in re.findall(r'code="(E_\w+)"', source.read_text(encoding="utf-8"))}
    of_keys = [folder / "keys.py", Path(vfl_node.crypto.filters.values.__file__)]
    raised |= {code for source in of_keys for code in re.findall(r'"(E_KEY_\w+)"', source.read_text(encoding="utf-8"))}
    said = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"`(E_\w+)`", said)) == raised
    assert set(re.findall(r"`(E_\w+)`", (REFERENCE / "table-errors.md").read_text(encoding="utf-8"))) == raised


def test_the_page_lists_exactly_the_spellings_of_a_missing_value() -> None:
    page = " ".join((REFERENCE / "columns.md").read_text(encoding="utf-8").split())

    def listed(begins: str, ends: str) -> set[str]:
        return set(re.findall("`([^`]+)`", page.split(begins)[1].split(ends)[0]))

    labels = listed("however the program that wrote the table spells it", "in small letters or capitals")
    assert set(map(str.lower, labels)) == MISSING_LABELS - {""}
    exact = listed("**Missing values** are an empty cell", "and, in any case,")
    anyhow = set(map(str.lower, listed("`\\N` and, in any case,", "columns of every kind")))
    assert exact | {word for word in MISSING if word.lower() in anyhow} == MISSING - {""}
    assert anyhow <= set(map(str.lower, MISSING))
    assert listed("also, in any case,", "among texts") == {word.upper() if word.startswith("#") else word for word in ABSENT}
