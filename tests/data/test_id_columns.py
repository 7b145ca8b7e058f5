"""Identifiers of whole columns are those of one cell after the other, whatever cells are mixed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.data import id_columns
from vfl_node.data.id_columns import FEW, UnusableId, identifiers_of
from vfl_node.data.identifiers import canonical, composite
from vfl_node.errors import DataError
from vfl_node.job import IdForm

FORMS: tuple[IdForm, ...] = ("text", "nocase", "integer")
ODD = [
    "",
    " ",
    "\0",
    "a\0b",
    "é",
    "e\u0301",
    "\u200b",
    "\ufeff7",
    "１２",
    "-007",
    "+0",
    "-0",
    "Straße",
    "ﬁ",
    "\U0001d7d8",
    "\u0378",
    " x ",
    "\x1c7",
]
LONG = "x" * 65_536


@pytest.fixture(autouse=True, scope="module", params=[0, FEW])
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """All cells at once, and few of them one by one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(id_columns, "FEW", request.param)
        yield


cells = (
    st.sampled_from(ODD)
    | st.text(max_size=5)
    | st.integers(-1000, 1000).map(str)
    | st.text("0123456789", min_size=1, max_size=4)
)


def one_by_one(columns: list[list[str]], forms: list[IdForm]) -> list[bytes] | tuple[int, int, str]:
    """The identifiers; or the first row without one, its column and why."""
    ids = []
    for row, values in enumerate(zip(*columns, strict=True)):
        parts = []
        for place, (value, form) in enumerate(zip(values, forms, strict=True)):
            try:
                parts.append(canonical(value, form))
            except DataError as error:
                return row, place, error.message
        ids.append(parts[0] if len(parts) == 1 else composite(parts))
    return ids


def at_once(columns: list[list[str]], forms: list[IdForm]) -> list[bytes] | tuple[int, int, str]:
    try:
        return list(identifiers_of([pa.array(column, pa.string()) for column in columns], forms))
    except UnusableId as error:
        return error.row, error.part, error.error.message


@given(st.data(), st.lists(st.sampled_from(FORMS), min_size=1, max_size=2), st.integers(0, 8))
def test_mixed_columns_are_as_single_cells(data: st.DataObject, forms: list[IdForm], rows: int) -> None:
    columns = [data.draw(st.lists(cells, min_size=rows, max_size=rows)) for _ in forms]
    assert at_once(columns, forms) == one_by_one(columns, forms)


@pytest.mark.parametrize("form", FORMS)
def test_usable_cells_of_both_kinds(form: IdForm) -> None:
    column = ["7", "１２", " 007", "\U0001d7d8", "-0", "5"] if form == "integer" else ["A", "É", LONG, "É" + LONG, "b\0", " c"]
    found = at_once([column], [form])
    assert found == one_by_one([column], [form])
    assert len(found) == 6


def test_no_text_holds_half_a_character() -> None:
    with pytest.raises(DataError, match="not valid Unicode"):
        canonical("a\ud800", "text")
    with pytest.raises(UnicodeEncodeError):
        pa.array(["a\ud800"], pa.string())
