"""Several rows become one record: what is taken of them, which rows count, and what is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pydantic import ValidationError

from vfl_node.data import aggregate, reading
from vfl_node.data.cells import text_of
from vfl_node.data.dates import DAY_S
from vfl_node.data.profile import profile
from vfl_node.data.readers.arrow import ArrowReader
from vfl_node.data.reading import columns_for, read_table
from vfl_node.data.tables import CategoricalColumn, DateColumn, ListColumn, NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.node import Data

AS_OF = date(2026, 10, 1)
EVERYTHING = {
    "columns": {
        "amount": ["sum", "mean", "median", "std", "min", "max", "count", "distinct", "first", "last"],
        "when": ["first", "last", "min", "max", "days_since_first", "days_since_last"],
        "shop": {"top": 2, "values": ["c", "nowhere"], "distinct": True, "most": True, "first": True, "last": True, "list": 3},
    },
    "order": "when",
    "as_of": AS_OF,
    "rows": "visits",
}


def visits(seed: int, rows: int = 600, people: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    seconds = rng.permutation(rows * 1000)[:rows] * 100
    shops = np.array(["a", "b", "c", "d", None], object)
    return pd.DataFrame(
        {
            "id": [f"p{person}" for person in rng.integers(0, people, rows)],
            "amount": np.where(rng.random(rows) < 0.2, np.nan, np.round(rng.gamma(2, 50, rows), 2)),
            "when": pd.Timestamp("2025-12-01") + pd.to_timedelta(seconds, unit="s"),
            "shop": shops[rng.choice(5, rows, p=[0.4, 0.2, 0.2, 0.1, 0.1])],
        }
    )


def settings(given: Any = EVERYTHING, **more: Any) -> Data:
    return Data(**({"path": Path("none")} | more), aggregate=given)


def read(frame: pd.DataFrame | Path, data: Data, **more: Any) -> Table:
    if isinstance(frame, Path):
        return read_table(data.model_copy(update={"path": frame}), id_form="text", party="lab", **{"needs_label": False} | more)
    reader = ArrowReader(frame, source="lab: visits")
    return read_table(data, id_form="text", party="lab", reader=reader, **{"needs_label": False} | more)


def names(table: Table) -> list[str]:
    return [id_.decode().removeprefix("text:") for id_ in table.ids]


def numbers(table: Table, name: str) -> np.ndarray[Any, Any]:
    column = table.columns[name]
    assert isinstance(column, NumericColumn | DateColumn)
    return column.values if isinstance(column, NumericColumn) else column.seconds


def texts(table: Table, name: str) -> list[str | None]:
    column = table.columns[name]
    assert isinstance(column, CategoricalColumn)
    return [None if code < 0 else column.levels[code] for code in column.codes]


@pytest.mark.parametrize("seed", range(3))
def test_all_that_is_taken_is_what_pandas_computes(seed: int) -> None:
    frame = visits(seed)
    table = read(frame, settings())
    known = frame[frame.when < pd.Timestamp(AS_OF) + pd.Timedelta(days=1)].sort_values("when")
    assert 0 < len(known) < len(frame)
    grouped, people = known.groupby("id"), names(table)
    assert sorted(people) == sorted(known.id.unique())

    amount = {"sum": grouped.amount.sum(min_count=1), "distinct": grouped.amount.nunique()}
    for name in ("mean", "median", "std", "min", "max", "count", "first", "last"):
        amount[name] = getattr(grouped.amount, name)()
    for name, expected in amount.items():
        np.testing.assert_allclose(
            numbers(table, f"amount_{name}"), expected.loc[people].to_numpy(float), rtol=1e-12, err_msg=name
        )

    ends = {"first": grouped.when.min(), "last": grouped.when.max()}
    for name, expected in (ends | {"min": ends["first"], "max": ends["last"]}).items():
        assert numbers(table, f"when_{name}").tolist() == [expected[person].timestamp() for person in people], name
    for name, expected in ends.items():
        days = [(pd.Timestamp(AS_OF) - expected[person].normalize()).days for person in people]
        assert numbers(table, f"when_days_since_{name}").tolist() == days

    most = grouped.shop.agg(lambda cells: next(iter(sorted(cells.mode())), None))
    for name, expected in {"most": most, "first": grouped.shop.first(), "last": grouped.shop.last()}.items():
        assert texts(table, f"shop_{name}") == [None if pd.isna(shop) else shop for shop in expected.loc[people]], name
    assert numbers(table, "shop_distinct").tolist() == grouped.shop.nunique().loc[people].tolist()
    counts = known.pivot_table(index="id", columns="shop", aggfunc="size", fill_value=0).reindex(people, fill_value=0)
    common = (counts > 0).sum().sort_values(ascending=False, kind="stable").index[:2].tolist()
    made = [name for name in table.columns if name.startswith("shop_count_")]
    assert made == [f"shop_count_{shop}" for shop in dict.fromkeys(["c", "nowhere", *common])]
    for shop in dict.fromkeys(["c", *common]):
        assert numbers(table, f"shop_count_{shop}").tolist() == counts[shop].tolist()
    assert not numbers(table, "shop_count_nowhere").any()
    assert numbers(table, "visits").tolist() == grouped.size().loc[people].tolist()

    column = table.columns["shop_list"]
    assert isinstance(column, ListColumn)
    pairs = zip(column.starts[:-1], column.starts[1:], strict=True)
    lists = [[column.levels[code] for code in column.codes[start:end]] for start, end in pairs]
    assert lists == [known[known.id == person].shop.dropna().tolist()[-3:] for person in people]
    assert column.cut == 0

    size = grouped.size()
    assert table.merged is not None
    assert (table.merged.rows, table.merged.records) == (len(frame), len(size))
    assert (table.merged.fewest, table.merged.most, table.merged.median) == (size.min(), size.max(), size.median())
    assert table.merged.dropped == len(frame) - len(known)
    assert str(table.merged) == (
        f"{len(frame)} rows → {len(size)} records, {size.min()} to {size.max()} each, median {size.median():g}; "
        f"{len(frame) - len(known)} rows after 2026-10-01 left out"
    )


def test_shuffled_rows_in_other_parts_give_the_same_digest(tmp_path: Path) -> None:
    """Also where rows are equally late, and where ids are written in several ways."""
    frame = visits(4)
    frame["when"] = frame.when.dt.normalize()
    frame["amount"] *= 10.0 ** np.random.default_rng(4).integers(-9, 9, len(frame))
    frame.loc[::3, "id"] = frame.id[::3].str.upper()
    shuffled = frame.sample(frac=1, random_state=1)
    folder = tmp_path / "parts"
    folder.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(len(frame)), 5)):
        shuffled.iloc[rows].to_parquet(folder / f"part-{part}.parquet", index=False)
    frame.to_csv(tmp_path / "whole.csv", index=False)
    tables = [
        read_table(settings(path=path), id_form="nocase", needs_label=False, party="lab")
        for path in (tmp_path / "whole.csv", folder)
    ]
    assert tables[0].digest() == tables[1].digest()
    assert tables[0].identity == tables[1].identity
    changed = shuffled.assign(amount=shuffled.amount.where(shuffled.index != 5, 1.0))
    assert read(changed.assign(id=changed.id.str.lower()), settings()).digest() != tables[0].digest()


def test_a_person_with_one_row_has_what_that_row_has() -> None:
    frame = visits(5, rows=40).drop_duplicates("id")
    table = read(frame, settings({"columns": {"amount": ["sum", "min", "last", "median"]}, "order": "when"}))
    plain = read(frame[["id", "amount"]], Data(path="none"))
    rows = [names(plain).index(name) for name in names(table)]
    for name in table.columns:
        np.testing.assert_array_equal(numbers(table, name), numbers(plain, "amount")[rows])
    assert table.merged is not None
    assert (table.merged.fewest, table.merged.most, table.merged.as_of) == (1, 1, None)


def test_several_columns_identify_a_record() -> None:
    frame = pd.DataFrame({"ward": ["a", "a", "b", "a"], "bed": [1, 2, 1, 1], "amount": [1.0, 2, 4, 8]})
    data = settings({"columns": {"amount": "sum"}}, id=["ward", "bed"])
    reader = ArrowReader(frame, source="lab: visits")
    table = read_table(data, id_form=("text", "integer"), needs_label=False, party="lab", reader=reader)
    assert sorted(numbers(table, "amount_sum").tolist()) == [2, 4, 9]


def test_rows_of_later_days_are_left_out_and_the_day_itself_counts() -> None:
    when = ["2026-10-01", "2026-10-01T23:59:59", "2026-10-02", "2026-09-30", "2026-10-03"]
    frame = pd.DataFrame({"id": ["p", "p", "p", "p", "q"], "amount": [1.0, 2, 4, 8, 16], "when": when})
    given = {"columns": {"amount": "sum", "when": "days_since_last"}, "order": "when", "as_of": "2026-10-01"}
    table = read(frame, settings(given))
    assert (names(table), numbers(table, "amount_sum").tolist(), numbers(table, "when_days_since_last").tolist()) == (
        ["p"],
        [11],
        [0],
    )
    with pytest.raises(DataError, match="has no rows up to 2026-09-01") as refused:
        read(frame, settings(given | {"as_of": "2026-09-01"}))
    assert refused.value.code == "E_EMPTY"


def test_rows_are_read_as_the_settings_say_of_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("id;paid;when;code\np;1.234,5 EUR;01/02/2026;007\np;-9;03/02/2026;7\nq;2,5 EUR;02/02/2026;007\n")
    columns: Any = {"paid": {"kind": "numeric", "scaling": "log"}, "code": "categorical", "paid_max": "ignore"}
    taken = {"paid": ["sum", "max", "count"], "code": ["distinct", "last"], "when": ["last"]}
    table = read(path, settings({"columns": taken, "order": "when"}, columns=columns, missing=[-9], date_format="d/m/Y"))
    by_name = dict(
        zip(names(table), zip(numbers(table, "paid_sum"), numbers(table, "code_distinct"), strict=True), strict=True)
    )
    assert by_name == {"p": (1234.5, 2), "q": (2.5, 1)}
    assert sorted(texts(table, "code_last")) == ["007", "7"]
    assert sorted(numbers(table, "when_last") / DAY_S) == [20486, 20487]
    paid = table.columns["paid_sum"]
    assert isinstance(paid, NumericColumn)
    assert paid.scaling == "log"
    assert "paid_max" not in table.columns


def test_a_number_that_is_made_is_no_missing_value() -> None:
    frame = pd.DataFrame({"id": ["p", "p", "q"], "amount": [-4.0, -5.0, -9.0]})
    table = read(frame, settings({"columns": {"amount": "sum"}}, missing=[-9]))
    assert dict(zip(names(table), numbers(table, "amount_sum").tolist(), strict=True)) == {
        "p": -9.0,
        "q": pytest.approx(np.nan, nan_ok=True),
    }


LABELS = pd.DataFrame(
    {"id": list("ppqqr"), "when": [1, 2, 2, 1, 1], "amount": 1.0, "label": [0, 0, 1, 1, 0], "ward": list("aabbc")}
)


def test_labels_groups_and_order_of_records() -> None:
    given = {"columns": {"amount": "sum", "when": "last"}, "order": "when"}
    table = read(LABELS, settings(given, order="when_last", group="ward"), needs_label=True, needs_order=True)
    assert table.labels is not None
    assert table.order is not None
    assert table.groups is not None
    found = zip(names(table), table.labels.tolist(), table.order.tolist(), table.groups.tolist(), strict=True)
    assert sorted(found) == [("p", 0, 2, 0), ("q", 1, 2, 1), ("r", 0, 1, 2)]
    assert list(table.columns) == ["amount_sum"]
    assert table.merged is not None
    assert "no as_of" in table.merged.caution


@pytest.mark.parametrize(("how", "expected"), [("last", {"p": 1.5, "q": 10.0}), ("max", {"p": 3.0, "q": 10.0})])
def test_the_label_of_rows_that_differ(how: str, expected: dict[str, float]) -> None:
    """As numbers 10 is more than 9, and as text it is not."""
    frame = pd.DataFrame({"id": list("ppqq"), "when": [1, 2, 2, 1], "label": ["3.0", "1.5", "10", "9"]})
    with pytest.raises(DataError) as refused:
        read(frame, settings({"order": "when"}), needs_label=True, task="regression")
    assert refused.value.code == "E_LABEL"
    assert "the rows of 2 records have different values in the label column 'label'" in refused.value.message
    assert not {"3.0", "1.5", "10", "9"} & set(refused.value.message.split())
    table = read(frame, settings({"order": "when", "label": how}), needs_label=True, task="regression")
    assert table.labels is not None
    assert dict(zip(names(table), table.labels.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("cells", "given", "code", "message"),
    [
        ("p,secret,1\np,2,1\n", {"columns": {"amount": "sum"}}, "E_NUMERIC", "visits.csv:2:amount: text in numeric column"),
        ("p,1,1\np,secret,1\n", {"columns": {"amount": "max"}}, "E_COLUMN", "column 'amount' has neither numbers nor dates"),
        ("p,1,1\np,2,\n", {"columns": {"amount": "last"}, "order": "when"}, "E_ROW_ORDER", "visits.csv:3:when: no value"),
        ("p,1,1\np,2,x y\n", {"columns": {"amount": "last"}, "order": "when"}, "E_ROW_ORDER", "neither numbers nor dates"),
        ("p,1,1\np,2,2026\n", {"order": "when", "as_of": "2026-10-01"}, "E_DATE", "visits.csv:2:when: not a date"),
        ("p,1,1\n,2,1\n", {"columns": {"amount": "sum"}}, "E_ID", "visits.csv:3:id: the identifier is empty"),
        ("p,1e300,1\np,1,1\n", {"columns": {"amount": "std"}}, "E_NUMERIC", "visits.csv:2:amount: a number is too large"),
        ("p,1,1\n", {"columns": {"amuont": "sum"}}, "E_COLUMN", "there is no column 'amuont' (data.aggregate)"),
        ("p,1,1\n", {"columns": {"amount": "sum", "when": "max"}, "rows": "amount_sum"}, None, "would be called 'amount_sum'"),
    ],
)
def test_errors_have_a_place_and_no_cell(tmp_path: Path, cells: str, given: Any, code: str | None, message: str) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("id,amount,when\n" + cells)
    if code is None:
        with pytest.raises(ValidationError, match=message):
            settings(given)
        return
    with pytest.raises(DataError) as refused:
        read(path, settings(given))
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value.message
    assert "secret" not in f"{refused.value.message} {refused.value.hint}"


def test_errors_of_records_name_the_line_where_their_rows_begin(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("id,label\np,0\nq,1\nr,\nr,\np,0\n")
    with pytest.raises(DataError) as refused:
        read(path, settings({}), needs_label=True)
    assert f"{path}:4:label" in refused.value.message
    frame = pd.read_csv(path)
    frame.to_parquet(tmp_path / "visits.parquet")
    with pytest.raises(DataError) as refused:
        read(tmp_path / "visits.parquet", settings({}), needs_label=True)
    assert "visits.parquet:row 3:label" in refused.value.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": {"amount": ["summ"]}}, "summ"),
        ({"columns": {"amount": []}}, "say what is taken"),
        ({"columns": {"amount": ["sum", "most"]}}, "sum is for numbers, and most for categories"),
        ({"columns": {"amount": "last"}}, "amount: last needs order"),
        ({"as_of": "2026-10-01"}, "as_of needs order"),
        ({"label": "last"}, "label: last needs order"),
        ({"columns": {"when": "days_since_last"}}, "as_of, which is missing"),
        ({"as_of": 20261001, "order": "when"}, "write the day as 2026-10-01"),
        ({"columns": {"shop": "sum"}}, "sum is not for a column that data.columns declares categorical"),
        ({"columns": {"shop": "max"}}, "max is not for a column that data.columns declares categorical"),
        ({"columns": {"note": "most"}}, "most is not for a column that data.columns declares ignore"),
        ({"columns": {"amount": "last"}, "order": "id"}, "which is that of data.id or data.label"),
        ({"columns": {"when": "sum"}, "order": "when", "as_of": "2026-10-01"}, "as_of is a day"),
        ({"columns": {"shop": "most"}, "order": "number", "as_of": "2026-10-01"}, "as_of is a day"),
        (
            {"columns": {"shop": {"top": 3}}, "rows": "shop_count_all"},
            "that count values of 'shop' begin with",
        ),
        ({"columns": {"shop": {"top": 3}, "shop_count_x": {"values": ["a"]}}}, "with 'shop_count_'"),
        ({"columns": {"shop": {"top": 3}, "shop_count": "distinct"}}, "would be called 'shop_count_distinct'"),
        ({"columns": {"id": "count"}}, "which is that of data.id or data.label"),
    ],
)
def test_settings_that_cannot_be_meant_so_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(given, columns={"shop": "categorical", "note": "ignore", "number": "numeric"})


@pytest.mark.parametrize(("key", "use"), [("group", "group"), ("order", "order"), ("label", "label")])
def test_a_column_of_the_record_is_not_taken_apart(key: str, use: str) -> None:
    given = {"columns": {"ward": "distinct"}} if key != "label" else {"columns": {"label": "distinct"}}
    with pytest.raises(DataError, match=f"is the {use} column, and data.aggregate.columns names it, too") as refused:
        read(LABELS, settings(given, **({key: "ward"} if key != "label" else {})), needs_label=True)
    assert refused.value.code == "E_COLUMN"


def test_groups_that_differ_are_refused() -> None:
    frame = LABELS.assign(ward=list("abccc"))
    with pytest.raises(DataError, match="different values in the group column 'ward'; the first of such rows is in row 1"):
        read(frame, settings({}, group="ward"), needs_label=True)


def test_repeated_ids_are_refused_with_a_hint_to_what_makes_them_one_record() -> None:
    with pytest.raises(DataError) as refused:
        read(LABELS, Data(path="none"), needs_label=True)
    assert refused.value.code == "E_DUP_IDS"
    assert "or data.aggregate" in str(refused.value.hint)


def test_without_it_nothing_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is merged")

    monkeypatch.setattr(reading, "merge_rows", never)
    table = read(LABELS.drop_duplicates("id"), Data(path="none"), needs_label=True)
    assert table.merged is None
    reader = ArrowReader(LABELS, source="lab: visits")
    assert aggregate.merge_rows(reader, Data(path="none"), id_form="text", party="lab", label=True) is reader


def test_a_job_that_only_aligns_reads_no_column_and_keeps_their_order(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("id,amount,when,label\np,no number,1,0\nq,1,5,1\np,2,3,0\n")
    data = settings({"columns": {"amount": "sum", "when": "last"}, "order": "when"}, order="when_last")
    table = read(path, data, needs_label=True, needs_order=True, features=False)
    assert table.order is not None
    assert dict(zip(names(table), table.order.tolist(), strict=True)) == {"p": 3, "q": 5}


def test_a_profile_sees_the_records() -> None:
    reader = ArrowReader(visits(6), source="lab: visits")
    text = columns_for(reader, settings(), id_form="text", needs_label=False, party="lab", keep_label=True)
    seen = profile(text, settings(), id_form="text", needs_label=False, party="lab")
    assert not seen.errors
    assert seen.table is not None
    assert seen.table.digest() == read(visits(6), settings()).digest()
    assert seen.rows == len(seen.table) == (text.merged and text.merged.records)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_dates_of_a_type_are_those_of_their_text(unit: str, zone: str | None) -> None:
    """Before 1970, with fractions and where there is none."""
    moments = pd.to_datetime(
        ["1969-12-31T23:59:59.5", "2026-02-01T10:00:00.25", None, "2026-02-01", "1969-12-30"], format="ISO8601"
    )
    when = pa.array(moments.tz_localize(zone), pa.timestamp(unit, zone), safe=False)
    typed = pa.table({"id": list("ppqqr"), "when": when})
    given = {"columns": {"when": ["min", "max", "count", "distinct", "days_since_last"]}, "order": "place", "as_of": AS_OF}
    place = pa.array([date(2026, 1, 1)] * 5)
    tables = [
        read_table(settings(given), id_form="text", needs_label=False, party="lab", reader=ArrowReader(table, source="lab: m"))
        for table in (typed.append_column("place", place), as_text(typed).append_column("place", pa.array(["2026-01-01"] * 5)))
    ]
    assert tables[0].digest() == tables[1].digest()


def as_text(table: pa.Table) -> pa.Table:
    return table.set_column(1, "when", text_of(table["when"].combine_chunks()))


def test_an_infinite_date_is_refused() -> None:
    when = pa.array([2**63 - 1, 0], pa.int64()).cast(pa.timestamp("us"))
    reader = ArrowReader(pa.table({"id": ["p", "p"], "when": when}), source="lab: m")
    data = settings({"columns": {"when": "max"}})
    with pytest.raises(DataError, match="row 1:when: an infinite number"):
        read_table(data, id_form="text", needs_label=False, party="lab", reader=reader)
