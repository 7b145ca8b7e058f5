"""Columns that are an image: how an owner declares them, what is refused, and how they are encoded."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from vfl_node.data.features import Encoder
from vfl_node.data.images import Image
from vfl_node.data.reading import read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, StateError
from vfl_node.settings.node import Data
from vfl_node.training.split.config import Train
from vfl_node.training.split.table_use import SplitTableUse

NAMES = ("p1", "p2", "p3", "p4", "p5", "p6")


def cells(rows: int = 4, **changed: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Columns of a table; p1 is a border that never varies, and the pixels stand among other columns."""
    grey = np.random.default_rng(0).integers(0, 256, (6, rows)).tolist()
    grey[0] = [0] * rows
    pixels = dict(zip(NAMES, grey, strict=True))
    return {
        "id": [f"r{row}" for row in range(rows)],
        "age": list(range(rows)),
        **pixels,
        "ward": ["x", "y"] * (rows // 2),
    } | changed


def csv(path: Path, columns: dict[str, Sequence[Any]]) -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(data: Data, **changed: Any) -> Table:
    return read_table(data, **({"id_form": "text", "needs_label": False, "party": "lab"} | changed))


def declared(path: Path, columns: str | list[str] = "p*", shape: Sequence[int] = (2, 3), **keys: Any) -> Data:
    return Data.model_validate({"path": path, "image": {"columns": columns, "shape": shape}, **keys})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return csv(tmp_path / "scans.csv", cells())


@pytest.mark.parametrize(
    ("columns", "shape", "found"),
    [
        ("p*", (2, 3), (1, 2, 3)),
        ("p?", (3, 2, 1), (3, 2, 1)),
        (list(NAMES), (1, 6), (1, 1, 6)),
    ],
)
def test_a_pattern_or_a_list_names_the_pixels(file: Path, columns: Any, shape: Any, found: Any) -> None:
    table = read(declared(file, columns, shape))
    assert table.image == Image(columns=NAMES, shape=found)
    assert list(table.columns) == ["age", *NAMES, "ward"]


def test_a_list_keeps_its_own_order(file: Path) -> None:
    order = [*reversed(NAMES)]
    assert read(declared(file, order)).image == Image(columns=tuple(order), shape=(1, 2, 3))


def test_a_pattern_leaves_out_ids_labels_and_ignored_columns(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", {"id": ["a", "b"], "label": [0, 1], "x": [1, 2], "y": [3, 4], "z": [5, 6]})
    image = {"columns": "*", "shape": [1, 2]}
    table = read(Data.model_validate({"path": path, "image": image, "columns": {"z": "ignore"}}), needs_label=True)
    assert table.image == Image(columns=("x", "y"), shape=(1, 1, 2))


def test_brackets_in_a_pattern_are_brackets(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", {"id": ["a", "b"], "p[0]": [1, 2], "p[1]": [3, 4], "p0": [5, 6]})
    table = read(Data.model_validate({"path": path, "image": {"columns": "p[?]", "shape": [1, 2]}}))
    assert table.image == Image(columns=("p[0]", "p[1]"), shape=(1, 1, 2))


@pytest.mark.parametrize("format", ["parquet", "arrow", "sql", "memory"])
def test_every_reader_gives_the_same_image(tmp_path: Path, file: Path, format: str) -> None:
    image, reader = {"columns": "p*", "shape": [2, 3]}, None
    arrow = pa.table(cells())
    if format == "parquet":
        parquet.write_table(arrow, tmp_path / "t")
        data = Data.model_validate({"path": tmp_path / "t", "image": image})
    elif format == "arrow":
        with pa.ipc.new_file(tmp_path / "t", arrow.schema) as writer:
            writer.write_table(arrow)
        data = Data.model_validate({"path": tmp_path / "t", "image": image})
    elif format == "sql":
        pytest.importorskip("sqlalchemy")
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.execute(f"create table scans ({', '.join(cells())})")
            database.executemany(
                f"insert into scans values ({', '.join('?' * len(cells()))})", zip(*cells().values(), strict=True)
            )
        query = {"query": "select * from scans order by id", "database": f"sqlite:///{tmp_path / 't.db'}"}
        data = Data.model_validate({**query, "image": image})
    else:
        from vfl_node.data.readers.arrow import ArrowReader

        data, reader = declared(file), ArrowReader(arrow.to_pandas(), source="lab: the table in memory")
    assert read(data, reader=reader).digest() == read(declared(file)).digest()


def test_a_border_of_one_value_is_numeric_whatever_it_looks_like(tmp_path: Path) -> None:
    """Undeclared, text in 6 of 100 cells makes a column categorical; a pixel is a number or an error."""
    path = csv(tmp_path / "t.csv", cells(100, p1=["dark"] * 6 + [0] * 94))
    with pytest.raises(DataError, match=r"t\.csv:2:p1: text in numeric column 'p1' \(6 such cells of 100\)") as caught:
        read(declared(path))
    assert caught.value.code == "E_NUMERIC"
    assert "leave it empty" not in caught.value.hint  # nor is that a pixel
    assert read(Data(path=path)).image is None


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"shape": (3, 3)}, "E_IMAGE", r"scans\.csv.*: data\.image has 6 columns, and its shape, 3 × 3, needs 9"),
        ({"columns": "q*"}, "E_IMAGE", "data.image has 0 columns"),
        ({"columns": [*NAMES[:5], "p7"]}, "E_COLUMN", r"there is no column 'p7' \(data\.image\)"),
        ({"columns": [*NAMES[:5], "id"]}, "E_COLUMN", "id: identifies records or labels them and cannot be a pixel"),
        ({"declared": {"p2": "categorical"}}, "E_COLUMN", "p2: is declared categorical and cannot be a pixel"),
        (
            {"declared": {"p2": {"kind": "numeric", "scaling": "log"}}},
            "E_COLUMN",
            "p2: has a scaling of its own and cannot be a pixel",
        ),
        ({"columns": list(NAMES), "declared": {"p2": "ignore"}}, "E_COLUMN", "p2: is declared ignore and cannot be a pixel"),
    ],
)
def test_what_is_no_image_is_refused_with_its_place(file: Path, given: dict[str, Any], code: str, said: str) -> None:
    image = {"columns": given.get("columns", "p*"), "shape": given.get("shape", (2, 3))}
    with pytest.raises(DataError, match=said) as caught:
        read(Data.model_validate({"path": file, "image": image, "columns": given.get("declared", {})}))
    assert caught.value.code == code
    assert caught.value.message.startswith("lab: ")


def test_a_pattern_that_fits_no_column_is_named_in_the_hint(file: Path) -> None:
    with pytest.raises(DataError, match=r"data\.image has 0 columns") as caught:
        read(declared(file, "q*"))
    assert "its columns fit no name in the table" in caught.value.hint


def test_a_missing_pixel_is_refused_with_its_line_and_never_filled(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", cells(p4=[7, "", "NA", 9]))
    with pytest.raises(
        DataError, match=r"t\.csv:3:p4: column 'p4' is a pixel of an image and has no value \(2 such cells\)"
    ) as caught:
        read(declared(path))
    assert caught.value.code == "E_IMAGE"
    assert "background" in caught.value.hint


@pytest.mark.parametrize(
    "image",
    [
        {"columns": "p*"},
        {"columns": "p*", "shape": [6]},
        {"columns": "p*", "shape": [2, 0]},
        {"columns": ["p1", "p1"], "shape": [1, 2]},
        {"columns": "", "shape": [1, 2]},
    ],
)
def test_a_declaration_that_is_none_is_refused(image: Any) -> None:
    with pytest.raises(ValidationError):
        Data.model_validate({"path": "t.csv", "image": image})


def test_the_pixels_of_a_channel_are_scaled_together(file: Path) -> None:
    table = read(declared(file, shape=(2, 1, 3)))
    rows = np.array([0, 1, 3])
    features = Encoder.fit(table, rows, "quantile").transform(table)
    assert features.pixels is not None
    image = features.numeric[:, features.pixels.columns].reshape(-1, *features.pixels.shape)  # (4, 2, 1, 3)
    grey = np.stack([table.columns[name].values for name in NAMES], axis=1).reshape(-1, 2, 1, 3)
    for channel in range(2):
        of = grey[:, channel]
        expected = (of - of[rows].mean()) / of[rows].std()
        np.testing.assert_allclose(image[:, channel], expected, rtol=1e-6)
    alone = Encoder.fit(read(Data(path=file)), rows, "standard").transform(table)
    assert (alone.numeric[:, 1] == 0).all()  # each by itself, the border is nothing but its mean
    assert (image[:, 0, 0, 0] < 0).all()  # in an image it is dark


def test_the_encoding_survives_json_and_selection(file: Path) -> None:
    table = read(declared(file))
    encoder = Encoder.fit(table, np.arange(4))
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    features, other = encoder.transform(table), again.transform(table)
    assert (features.numeric == other.numeric).all()
    part = features.take(np.array([2, 0])).append(features)
    assert part.pixels is features.pixels
    assert len(part) == 6


def test_an_encoder_of_a_version_without_images_is_read(file: Path) -> None:
    table = read(Data(path=file))
    encoder = Encoder.fit(table, np.arange(4))
    document = json.loads(encoder.to_json())
    del document["image"]
    assert Encoder.from_json(json.dumps({**document, "version": 2})) == encoder


def test_a_stored_image_that_lacks_a_pixel_is_refused(file: Path) -> None:
    document = json.loads(Encoder.fit(read(declared(file)), np.arange(4)).to_json())
    lacking = {**document, "image": {**document["image"], "columns": NAMES[1:]}}
    strange = {**document, "image": {**document["image"], "columns": [*NAMES[1:], "ward"]}}
    for damaged in (lacking, strange):
        with pytest.raises(StateError) as caught:
            Encoder.from_json(json.dumps(damaged))
        assert caught.value.code == "E_STATE_CORRUPT"


def test_new_records_need_every_pixel(file: Path, tmp_path: Path) -> None:
    encoder = Encoder.fit(read(declared(file)), np.arange(4))
    table = read(Data(path=csv(tmp_path / "new.csv", cells(p5=[1, 2, "", 4]))))
    with pytest.raises(DataError, match="row 3: column 'p5' is a pixel of an image and has no value") as caught:
        encoder.transform(table)
    assert caught.value.code == "E_IMAGE"


def test_another_image_is_another_table(file: Path) -> None:
    digests = {
        read(data).digest()
        for data in (Data(path=file), declared(file), declared(file, shape=(3, 2)), declared(file, [*reversed(NAMES)]))
    }
    assert len(digests) == 4


def test_a_part_of_a_table_keeps_its_image(file: Path) -> None:
    table = read(declared(file))
    assert sample(table, 2, bytes(32)).image == table.image


def test_translated_rows_keep_every_pixel_to_the_last_bit(file: Path) -> None:
    table = read(declared(file))
    whole, part = Encoder.fit(table, np.arange(4)), Encoder.fit(table, np.array([0, 2]))
    translated = whole.translate(whole.transform(table), part, table)
    assert (translated.numeric == part.transform(table).numeric).all()
    assert (translated.pixels.columns == whole.transform(table).pixels.columns).all()


def test_a_date_before_the_pixels_does_not_move_them(tmp_path: Path) -> None:
    dates = [f"2024-01-0{day}" for day in range(1, 5)]
    table = read(declared(csv(tmp_path / "t.csv", {"day": dates, **cells()})))
    encoder = Encoder.fit(table, np.arange(4))
    features = encoder.transform(table)
    grey = np.stack([table.columns[name].values for name in NAMES], axis=1)
    scaled = (grey - grey.mean()) / grey.std()
    np.testing.assert_allclose(features.numeric[:, features.pixels.columns], scaled, rtol=1e-6)


def test_columns_read_are_those_of_the_table(file: Path) -> None:
    described = SplitTableUse(Train(model="cnn")).columns(read(declared(file)))
    assert {column.name: column.transform for column in described} == {
        "age": "standard",
        **dict.fromkeys(NAMES, "standard"),
        "ward": None,
    }
    assert dataclasses.asdict(described[1])["missing"] == 0
