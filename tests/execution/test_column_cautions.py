"""Each column that tells a model nothing, or something else than it holds, is named to its owner."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.identifiers import Identifiers, canonical, composite
from vfl_node.data.images import Image
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.execution import column_cautions
from vfl_node.execution.simulation import simulate
from vfl_node.settings.declared import Notation


def table(rows: int = 400) -> Table:
    return Table(Identifiers.from_items(str(row).encode() for row in range(rows)), {})


def text(*cells: str) -> CategoricalColumn:
    levels = tuple(sorted(set(cells)))
    return CategoricalColumn(np.array([levels.index(cell) for cell in cells]), levels, detected=True)


def test_columns_that_may_be_codes_or_are_of_no_use() -> None:
    units = [f"{row} {'kg' if row % 3 else 'g'}" for row in range(400)]
    columns = {
        "place": NumericColumn(np.arange(400.0), zero_led=120),
        "size": text(*units),
        "note": replace(text(*units), detected=False),
        "kind": text(*(f"kind {row % 30}" for row in range(400))),  # 13 or 14 rows each
    }
    place, size, note = column_cautions.column_cautions(replace(table(), columns=columns))
    assert place == (
        "Column 'place' is read as numbers, and 120 of its 400 cells begin with a zero before other digits, as postcodes and "
        "other codes do: these zeros are lost. Declare it (data.columns: {place: categorical}; numeric if it holds numbers)."
    )
    assert size == (
        "Column 'size' is read as categories, and 400 of its 400 values are rare: fewer than 10 of your records have the "
        "same value. Rare values are merged or learnt by heart, so the model gets hardly anything from them. If the column "
        "holds numbers or dates, correct its cells or say how they are written (data.columns: {size: {kind: numeric, missing: "
        "[WORD]}} or {kind: date, date_format: d/m/Y}); else say data.columns: {size: ignore}."
    )
    assert note.endswith("from them. To leave it out say data.columns: {note: ignore}.")
    assert column_cautions.column_cautions(replace(table(90), columns={"size": text(*units[:90])})) == ()
    many = {f"place {number}": NumericColumn(np.arange(400.0), zero_led=1) for number in range(7)}
    assert column_cautions.column_cautions(replace(table(), columns=many))[-1] == "2 more columns may hold codes."


def test_numbers_that_others_have_made_categories() -> None:
    cells = [f"{row / 8}" if row % 3 else "<0.5" for row in range(400)]
    assert of(size=text(*cells)).startswith("Column 'size' is read as categories, and 266 of its 400 values are rare")
    dates = [f"{np.datetime64('2001-01-01T10') + row}" if row % 3 else "later" for row in range(400)]
    assert of(since=text(*dates)).startswith("Column 'since' is read as categories, and 266 of its 400 values are rare")
    assert of(size=replace(text(*cells), detected=False)) == ""
    assert of(size=text(*(cell if cell == "<0.5" else f"E{cell}" for cell in cells))) == ""  # codes, most of them rare


def of(**columns: Column) -> str:
    """The one warning of these columns; empty if there is none."""
    return "".join(column_cautions.column_cautions(replace(table(), columns=columns)))


RISING = np.arange(400.0) % 73 + 18
NAN = np.where(np.arange(400) % 7 == 0, np.nan, RISING)


@pytest.mark.parametrize("far", [999, -999, 1e9, -1])
def test_numbers_that_most_likely_stand_for_missing_ones(far: float) -> None:
    values = np.where(np.arange(400) % 50 == 0, far, NAN)
    assert of(v=NumericColumn(values)) == (
        ""
        if far == -1
        else "Column 'v' has 8 cells that are very far from all others, as 9999 is if it stands for a missing value. If they "
        "stand for missing values, say data.columns: {v: {kind: numeric, missing: [VALUE]}}."
    )


def test_amounts_dates_and_few_values_that_are_far_apart() -> None:
    every = np.arange(400)
    assert "kind: date" in of(v=DateColumn(np.where(every % 9 == 0, 2.5e11, 1.6e9 + every * 86_400.0)))
    assert "45 cells" in of(v=NumericColumn(np.where(every % 9 == 0, 98.0 + every % 2, RISING / 3)))
    assert "kind: date" in of(v=DateColumn(np.where(every % 9 == 0, 0.0, 1.6e9 + every * 86_400.0)))
    assert "45 cells" in of(v=NumericColumn(np.where(every % 9 == 0, 9.0, every % 2 + 1)))  # yes, no, unknown
    assert "45 cells" in of(v=NumericColumn(np.where(every % 9 == 0, 0.0, 1950 + every % 70)))
    usual = [
        np.where(every % 9 == 0, 0, RISING + 500),  # none, or an amount
        np.where(every == 7, 1e6, RISING),  # one outlier
        (every % 4 + 1) ** 3.0,  # few values
        np.where(every % 2 == 0, 0.0, 1.0),
        np.where(every % 5 == 0, 12.0, every % 3 + 1),  # packs of 1, 2, 3 and 12
        np.full(400, np.nan),
        np.exp(every / 40),
    ]
    assert [of(v=NumericColumn(values)) for values in usual] == [""] * len(usual)
    targets = np.where(every % 9 == 0, 9999, RISING)
    (said,) = column_cautions.column_cautions(replace(table(), labels=targets))
    assert said.startswith("45 targets are very far from all others")
    assert column_cautions.column_cautions(replace(table(), labels=targets.astype(np.float32))) == ()  # classes
    image = Image(columns=("v",), shape=(1, 1, 1))
    sentinel = {"v": NumericColumn(np.where(every % 9 == 0, 9999, RISING))}
    assert column_cautions.column_cautions(replace(table(), columns=sentinel, image=image)) == ()


def test_numbers_in_a_shape_that_other_things_have() -> None:
    phone = NumericColumn(np.arange(400.0), seems="codes")
    paid = NumericColumn(np.arange(400.0) / 8, seems="thousands")
    said = column_cautions.column_cautions(replace(table(), columns={"phone": phone, "paid: all": paid}))
    assert said == (
        "Column 'phone' is read as numbers with thousands in groups, and nearly all its cells are different numbers with the "
        "same number of digits, like telephone numbers and numbers of persons and companies. Declare it (data.columns: {phone: "
        "ignore}; numeric if it holds numbers).",
        "Column 'paid: all' is read as numbers with decimals. But every point stands before exactly three digits, as if the "
        "points separated thousands. If they do, say data.columns: {'paid: all': {kind: numeric, thousands: '.'}}; else "
        "decimal: '.'.",
    )
    others = {"whole": NumericColumn(np.arange(400.0)), "by_comma": replace(paid, notation=Notation(decimal=","), seems=None)}
    assert len(column_cautions.column_cautions(replace(table(), columns={"paid": paid, **others}))) == 1
    proof = {"half": NumericColumn(np.arange(400.0) / 2)}
    assert column_cautions.column_cautions(replace(table(), columns={"paid": paid, **proof})) == ()


def test_a_last_row_with_totals() -> None:
    for last, said in (("Total", 1), ("Grand total:", 1), ("total 7", 0), ("7", 0)):
        ids = Identifiers.from_items(canonical(id_, "text") for id_ in ("1", "sum", last))
        assert len(column_cautions.total_cautions(Table(ids, {}))) == said
    composite_ids = Identifiers.from_items([composite([canonical("1", "text"), canonical("Summe", "nocase")])])
    assert len(column_cautions.total_cautions(Table(composite_ids, {}))) == 1
    assert column_cautions.total_cautions(Table(Identifiers.from_items(()), {})) == ()


def test_columns_of_which_no_level_is_left() -> None:
    lost = EncodedColumn("size", "categorical", None, 0, 12, (), 0)
    kept = [replace(lost, levels=1), replace(lost, merged=0), replace(lost, kind="list"), replace(lost, kind="numeric")]
    (said,) = column_cautions.encoding_cautions([lost, *kept], ())
    assert said.startswith("Column 'size' is read as categories, and all its 12 levels are merged")
    assert column_cautions.encoding_cautions([lost], [said]) == ()


def test_a_party_is_warned_of_its_own_columns_in_its_log_and_report(trial: Any, tmp_path: Path) -> None:
    head, *rows = trial.lab.read_text().splitlines()
    odd = (f"{line},{row % 80:05},{row} {'cm' if row % 2 else 'mm'}" for row, line in enumerate(rows))
    lab = tmp_path / "lab.csv"
    lab.write_text("\n".join([f"{head},place,size", *odd]))
    job = trial.job("train: {bottom: [8], active_bottom: [4], top: [8], epochs: 1, batch_size: 32}\n")
    with capture_logs() as lines:
        folders = simulate(job, {"clinic": trial.clinic, "lab": lab}, tmp_path / "out")
    reports = {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}
    warnings = reports["lab"]["training"]["warnings"]
    assert [warning[:13] for warning in warnings] == ["Column 'place", "Column 'size'"]
    assert not any("Column" in warning for warning in reports["clinic"]["training"]["warnings"])
    logged = "\n".join(map(str, lines))
    assert all(warning in logged for warning in warnings)
