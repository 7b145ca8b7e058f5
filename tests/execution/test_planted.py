"""Values of a table are found in messages in every form that is searched, and not by chance."""

from __future__ import annotations

import base64
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from vfl_node.execution import planted as planted_module
from vfl_node.execution.planted import PlantedValues, Value, draw_values
from vfl_node.settings.table import Data

SEED = bytes(range(32))
NOISE = np.random.default_rng(3).bytes(1 << 18)
VALUES = [Value("id", f"patient-{number:05d}") for number in range(2000)]
TEXT = "patient-01234"

FORMS = {
    "UTF-8": TEXT.encode(),
    "UTF-16": TEXT.encode("utf-16-le"),
    "hex": TEXT.encode().hex().encode(),
    "capital hex": TEXT.encode().hex().upper().encode(),
    **{f"base64 after {before}": base64.b64encode(bytes(before) + TEXT.encode() + b"more") for before in range(3)},
}


@pytest.fixture(scope="module")
def planted() -> PlantedValues:
    return PlantedValues(VALUES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [0, 7, len(NOISE)])
def test_a_value_is_found_in_each_form_wherever_it_stands(planted: PlantedValues, form: str, place: int) -> None:
    assert planted.find(NOISE[:place] + FORMS[form] + NOISE[place:])["id"] >= 1


def test_nothing_is_found_where_there_is_nothing(planted: PlantedValues) -> None:
    """By chance some of 2¹⁸ places begin with 6 bytes of some of 18,000 forms in 1 of 60,000 runs; the seed is fixed."""
    for body in (NOISE, b"", b"patie", NOISE[:3] + b"patient-0", bytes(1000)):
        assert planted.find(body) == Counter()


def test_numbers_are_found_as_they_are_stored_and_small_ones_are_left_out() -> None:
    planted = PlantedValues(
        [
            Value("cell", "123456789.25"),
            Value("cell", "20000001"),
            Value("cell", "35"),
            Value("cell", "0.0"),
        ]
    )
    assert planted.find(NOISE[:99] + struct.pack("<d", 123456789.25)) == Counter(cell=1)
    assert planted.find(NOISE[:99] + struct.pack("<q", 20000001)) == Counter(cell=1)
    assert planted.find(struct.pack("<dd", 35, 0) + struct.pack("<q", 35)) == Counter()


def test_a_few_rows_of_a_large_table_are_drawn_by_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_module, "MOST_VALUES", most := 400)
    rows = 3 * most
    text = "id,town\n" + "".join(f"person-{number:06d},town of {number % 1000:04d}\n" for number in range(rows))
    (tmp_path / "people.csv").write_text(text)
    data = Data(path=tmp_path / "people.csv")
    one, again, other = (
        draw_values(data, party="lab", ids=("id",), label=None, seed=seed) for seed in (SEED, SEED, SEED[::-1])
    )
    drawn = [one.find(f" person-{number:06d} ".encode())["id"] for number in range(rows)]
    assert sum(drawn) == most // 2
    assert 0.3 < sum(drawn[: rows // 2]) / sum(drawn) < 0.7  # 200 of 1,200: over 6 standard deviations either way
    assert drawn == [again.find(f" person-{number:06d} ".encode())["id"] for number in range(rows)]
    assert drawn != [other.find(f" person-{number:06d} ".encode())["id"] for number in range(rows)]
    assert one.find(b"of people.csv") == Counter(file=1)
    assert one.describe()["seed"] == SEED.hex()
