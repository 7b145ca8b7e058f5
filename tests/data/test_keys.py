"""Keys of a linkage are read with their bounds, and are features in no job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.configuration.models import validate
from vfl_node.data.reading import read_table
from vfl_node.data.sampling import sample
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Align
from vfl_node.settings.node import Data

KEYS = {
    "u": {"kind": "number", "low": 0, "high": 10, "reach": 1},
    "day": {"kind": "date", "low": "2020-01-01", "high": "2020-12-31", "reach": 7},
    "home": {"kind": "place", "south": 1, "north": 2, "west": 103, "east": 104, "reach": 500},
    "name": {"kind": "text"},
}
HEAD = "id,u,when,LAT,LON,name,x"
LINES = ["a,1.5,2020-02-03,1.3,103.5,Ann Lee,7", "b,10,2020-12-31T23:59:59,2,104,Bob,8"]
BEHIND = {"day": "when", "home": ["LAT", "LON"]}


def table(tmp_path: Path, lines: list[str] = LINES, keys: dict[str, Any] = KEYS, behind: Any = BEHIND, **rest: Any) -> Any:
    path = tmp_path / "table.csv"
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    align = Align(protocol="linkage", keys=keys, noise={"sigma": 0}) if keys else Align()
    data = Data(path=path, keys=behind, **rest)
    return read_table(data, id_form="text", needs_label=False, party="lab", keys=align.keys or {})


def test_values_and_features(tmp_path: Path) -> None:
    read = table(tmp_path)
    assert list(read.columns) == ["x"]
    np.testing.assert_array_equal(read.keys["u"], [1.5, 10])
    np.testing.assert_array_equal(read.keys["day"], [1580688000, 1609459199])
    np.testing.assert_array_equal(read.keys["home"], [[1.3, 103.5], [2, 104]])
    assert read.keys["name"] == ("Ann Lee", "Bob")


def test_columns_that_the_settings_name_are_features_in_no_job(tmp_path: Path) -> None:
    read = table(tmp_path, keys={})
    assert list(read.columns) == ["u", "name", "x"]
    assert read.keys == {}


def test_the_digest_has_the_keys_where_there_are_some(tmp_path: Path) -> None:
    without = table(tmp_path, keys={}).digest()
    assert table(tmp_path, keys={"u": KEYS["u"]}, behind={**BEHIND, "u": "name"} | {"u": "x"}).digest() != without
    first = table(tmp_path).digest()
    other = table(tmp_path, [LINES[0].replace("Ann Lee", "Anne Lee"), LINES[1]]).digest()
    moved = table(tmp_path, [LINES[0].replace("1.3,", "1.4,"), LINES[1]]).digest()
    assert len({first, other, moved}) == 3


def test_a_part_of_a_table_has_its_keys(tmp_path: Path) -> None:
    part = sample(table(tmp_path), 1, b"key")
    row = [*map(bytes, table(tmp_path).ids)].index(bytes(part.ids[0]))
    assert part.keys["name"] == (table(tmp_path).keys["name"][row],)
    np.testing.assert_array_equal(part.keys["home"], table(tmp_path).keys["home"][row : row + 1])


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ("1.5", "", "E_KEY_MISSING", "table.csv:2:u"),
        ("1.5", "NA", "E_KEY_MISSING", "table.csv:2:u"),
        ("1.5", "secret", "E_KEY_VALUE", "table.csv:2:u"),
        ("1.5", "10.01", "E_KEY_BOUNDS", "table.csv:2:u"),
        ("2020-02-03", "2021-02-03", "E_KEY_BOUNDS", "table.csv:2:when"),
        ("2020-02-03", "secret", "E_KEY_VALUE", "table.csv:2:when"),
        ("103.5", "104.5", "E_KEY_BOUNDS", "table.csv:2:LON"),
        ("Ann Lee", "", "E_KEY_MISSING", "table.csv:2:name"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, code: str, place: str) -> None:
    with pytest.raises(DataError) as refused:
        table(tmp_path, [LINES[0].replace(old, new), LINES[1]])
    assert refused.value.code == code
    assert place in refused.value.message
    assert "1 such cell of 2" in refused.value.message
    assert "secret" not in refused.value.message
    assert "10.01" not in refused.value.message
    assert ("other bounds" in str(refused.value.hint)) == (code == "E_KEY_BOUNDS")


@pytest.mark.parametrize(
    ("behind", "rest", "code"),
    [
        ({}, {}, "E_CONFIG"),  # a place is not called as one column
        ({**BEHIND, "u": "nowhere"}, {}, "E_COLUMN"),
        ({**BEHIND, "u": ["LAT", "LON"]}, {}, "E_CONFIG"),
        (BEHIND, {"columns": {"u": "numeric"}}, "E_COLUMN"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, behind: Any, rest: Any, code: str) -> None:
    with pytest.raises(DataError) as refused:
        table(tmp_path, behind=behind, **rest)
    assert refused.value.code == code


def test_a_key_may_be_an_id_and_no_label() -> None:
    assert Data(path=Path("t.csv"), id="name", keys={"name": "name"}).key_columns == ("name",)
    for rest in ({"label": "y", "keys": {"u": "y"}}, {"order": "o", "keys": {"u": "o"}}):
        with pytest.raises(UsageError, match="already that of"):
            validate({"path": "t.csv", **rest}, Data, source="settings")
