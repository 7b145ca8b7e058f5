"""A check says which words it has read as missing values, and how often."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.thorough import examples
from vfl_node.cli import app
from vfl_node.data.column_profile import ColumnProfile
from vfl_node.data.missing_words import ABSENT, MISSING
from vfl_node.node.check import check_table
from vfl_node.settings.node import Data, Settings


def columns_of(path: Path, **said: Any) -> dict[str, ColumnProfile]:
    data = Data(path=path, **said)
    node = Settings(name="lab", role="passive", data=data, listen="127.0.0.1:0", peers={}, insecure_loopback=True)
    seen = check_table(node, data=data).profile
    assert seen is not None
    return {column.name: column for column in seen.columns}


NULL = ["NULL", "n/a", "", "#DIV/0!", "unknown", "-", "Not Asked"]


@settings(deadline=None, derandomize=True, max_examples=examples(100, fewer=15))
@given(words=st.lists(st.sampled_from(NULL), max_size=12), parquet=st.booleans())
def test_words_are_counted_as_they_are_spelled(
    words: list[str], parquet: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cells = [str(number / 2) for number in range(300)] + words
    kinds = ["red", "blue"] * 150 + words
    table = pa.table({"id": [f"a{row}" for row in range(len(cells))], "x": cells, "kind": kinds})
    path = tmp_path_factory.mktemp("words") / "table"
    pq.write_table(table, path) if parquet else pa.csv.write_csv(table, path)
    columns = columns_of(path, missing=["not asked"])
    counts = Counter(word for word in words if word)
    assert dict(columns["x"].words) == counts
    assert columns["x"].missing == len(words)
    named = {word: rows for word, rows in counts.items() if word in MISSING or word == "Not Asked"}
    assert dict(columns["kind"].words) == named
    assert columns["kind"].missing == sum(named.values()) + words.count("")


def test_every_word_of_the_lists_is_seen_among_numbers(tmp_path: Path) -> None:
    words = sorted({*MISSING, *ABSENT} - {""})
    rows = "".join(f'{row},"{cell}"\n' for row, cell in enumerate([*map(str, range(9000)), *words]))
    (tmp_path / "t.csv").write_text(f"id,x\n{rows}")
    column = columns_of(tmp_path / "t.csv")["x"]
    assert (column.use, dict(column.words)) == ("numeric", dict.fromkeys(words, 1))


def test_the_command_says_the_words_and_never_another_cell(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [*(f"{row},{row}" for row in range(200)), *(f"m{row},NULL" for row in range(12)), "m12,n/a", "m13,-"]
    rows += [f"n{row},{word}" for row, word in enumerate(["none", "nil", ".", "--"])]
    path.write_text("id,x\n" + "\n".join(rows))
    said = CliRunner().invoke(app, ["check", str(path)], env={"COLUMNS": "200"}).output
    assert "missing by NULL (12), - (1), -- (1), . (1), n/a (1), …" in " ".join(said.split())
