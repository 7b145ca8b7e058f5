"""The loader of the published FedAds files, on made-up clicks in their form."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from vfl_node.configuration.models import load
from vfl_node.errors import UsageError
from vfl_node.execution.private import read_private, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job

ROOT = Path(__file__).parents[2]
ROWS = {"sample_train_aligned": 400, "sample_train_nonaligned": 1600, "sample_test": 203}


@pytest.fixture(scope="module")
def published() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield importlib.import_module("experiments.fedads.published")


def cells(published: Any, rows: int, seed: int, *, both: bool, leaking: str = "") -> list[list[str]]:
    """Names and clicks, as in a published file; the column ``leaking`` has a value of its own for each conversion."""
    rng = np.random.default_rng(seed)
    names = [*published.LABEL_PARTY, *(published.OTHER_PARTY if both else ())]
    values = rng.integers(0, 12, size=(rows, len(names)))
    values[:, names.index("l_u_fea_1")] = rng.integers(0, rows, rows)  # users, most of them with one click
    labels = (rng.random(rows) < np.where(values[:, 0] < 4, 0.4, 0.05)).astype(int)
    if leaking in names:  # when it was converted; of the others nothing
        values[:, names.index(leaking)] = np.where(labels, 10_000 + np.arange(rows), 0)
    clicks = ([f"{seed}{row:06d}", f"['{labels[row]}']", *(f"['{value}']" for value in values[row])] for row in range(rows))
    return [["sample_id", "label", *names], *clicks]


def write(folder: Path, name: str, table: list[list[str]], ending: str = ".csv") -> None:
    text = io.StringIO()
    csv.writer(text).writerows(table)
    data = text.getvalue().encode()
    if ending == ".tar.gz":
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo(f"{name}.csv")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    else:
        (folder / f"{name}{ending}").write_bytes(gzip.compress(data) if ending == ".csv.gz" else data)


def made_up(published: Any, folder: Path, endings: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    tables = {}
    for seed, (name, rows) in enumerate(ROWS.items(), 1):
        tables[name] = cells(published, rows, seed, both="non" not in name, **options)
        write(folder, name, tables[name], (endings or {}).get(name, ".csv"))
    return tables


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


ARCHIVES = {"sample_train_aligned": ".tar.gz", "sample_train_nonaligned": ".csv.gz"}


@pytest.mark.parametrize("endings", [{}, ARCHIVES])
def test_every_click_and_cell_is_where_its_owner_has_it(published: Any, tmp_path: Path, endings: dict[str, str]) -> None:
    tables = made_up(published, tmp_path / "in", endings)
    made = published.convert(tmp_path / "in", tmp_path / "out")
    assert made.rows == {"aligned": 400, "nonaligned": 1600, "test": 203}
    assert (len(made.columns["active"]), len(made.columns["passive"])) == (16, 7)
    assert len({*made.columns["active"], *made.columns["passive"]}) == 22
    active, passive = (read(made.files[role]) for role in ("active", "passive"))
    sources = {row[0]: (name, dict(zip(table[0], row, strict=True))) for name, table in tables.items() for row in table[1:]}
    assert {row["sample_id"] for row in active} == sources.keys()
    assert len(active) == len(sources)
    for row in (*active, *passive):
        name, source = sources[row["sample_id"]]
        assert all(f"['{value}']" == source[key] for key, value in row.items() if key not in ("sample_id", "part"))
        assert row.get("part", "1" if name == "sample_test" else "0") == ("1" if name == "sample_test" else "0")
    assert {sources[row["sample_id"]][0] for row in passive} == {"sample_train_aligned", "sample_test"}
    assert len(passive) == 603
    assert "label" not in passive[0]


def test_the_user_may_be_the_label_partys_alone(published: Any, tmp_path: Path) -> None:
    made_up(published, tmp_path)
    made = published.convert(tmp_path, tmp_path / "out", user_once=True, without=["l_c_fea"])
    assert made.columns["passive"] == ("f_u_fea_1", "f_u_fea_2", "f_uc_fea_1", "f_uc_fea_2", "f_c")
    assert list(read(made.files["passive"])[0]) == ["sample_id", *made.columns["passive"]]


@pytest.mark.parametrize("column", ["l_c_fea", "f_u_fea_2", "l_i_fea_10"])
def test_a_column_that_tells_the_label_is_refused_by_its_name(published: Any, tmp_path: Path, column: str) -> None:
    """Though no value of it that a conversion has occurs twice. Left out, it does not matter."""
    made_up(published, tmp_path, leaking=column)
    with pytest.raises(UsageError) as refused:
        published.convert(tmp_path, tmp_path / "out")
    assert refused.value.code == "E_LABEL_LIKE"
    assert f"column '{column}' alone tells the label" in refused.value.message
    assert f"--without {column}" in refused.value.hint
    assert not (tmp_path / "out").exists()
    assert column not in str(published.convert(tmp_path, tmp_path / "out", without=[column]).columns)


def test_how_well_a_column_alone_tells_the_label(published: Any) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(4000) < 0.3).astype(np.int64)

    def alone(values: Any) -> float:
        return published.alone(pa.array(values).cast(pa.string()), labels)

    assert alone(np.arange(4000)) == pytest.approx(0.5, abs=0.03)
    assert alone(rng.integers(0, 50, 4000)) == pytest.approx(0.5, abs=0.03)
    assert alone(labels) == 1
    assert 0.85 < alone(np.where(rng.random(4000) < 0.2, rng.integers(0, 2, 4000), labels)) < 0.95


def test_many_clicks_are_looked_at_evenly(published: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "MOST_OF_A_CLASS", 100)
    spread = published._Spread()
    for start in range(0, 5000, 37):
        spread.add(pa.record_batch([pa.array(range(start, min(start + 37, 5000)))], names=["click"]))
    kept = spread.clicks().column("click")
    assert kept.to_pylist() == list(range(0, 5000, spread.step))
    assert 50 < len(kept) <= 100


def test_lists_of_several_values_and_of_none(published: Any, tmp_path: Path) -> None:
    tables = made_up(published, tmp_path)
    tables["sample_test"][1][2:5] = ["['7', '8']", "[]", "9"]
    write(tmp_path, "sample_test", tables["sample_test"])
    made = published.convert(tmp_path, tmp_path / "out")
    row = next(row for row in read(made.files["active"]) if row["sample_id"] == tables["sample_test"][1][0])
    assert [row[name] for name in ("l_i_fea_1", "l_i_fea_2", "l_i_fea_3")] == ["7|8", "", "9"]


def test_what_is_not_the_published_form_is_refused(published: Any, tmp_path: Path) -> None:
    def refused() -> UsageError:
        with pytest.raises(UsageError) as error:
            published.convert(tmp_path, tmp_path / "out")
        return error.value

    assert (refused().code, "sample_train_aligned.csv" in refused().message) == ("E_FILE", True)
    tables = made_up(published, tmp_path)
    write(tmp_path, "sample_train_unaligned", tables["sample_train_nonaligned"])
    assert (refused().code, "are the same" in refused().message) == ("E_FILE", True)
    (tmp_path / "sample_train_unaligned.csv").unlink()
    table = tables["sample_train_aligned"]
    write(tmp_path, "sample_train_aligned", [row[:-1] for row in table])
    assert (refused().code, "sample_train_aligned.csv lacks f_c" in refused().message) == ("E_COLUMN", True)
    write(tmp_path, "sample_train_aligned", [*table[:9], [table[9][0], "['2']", *table[9][2:]], *table[10:]])
    assert refused().message == "sample_train_aligned.csv:10:label: the label is neither 0 nor 1"
    write(tmp_path, "sample_train_aligned", [*table[:9], table[9][:-2], *table[10:]])
    assert refused().code == "E_CSV"
    assert table[9][5] not in refused().message
    assert table[9][0] not in refused().message
    assert refused().message.endswith("Expected 24 columns, got 22")
    doubled = [[*row, row[1]] for row in table]
    write(tmp_path, "sample_train_aligned", doubled)
    assert (refused().code, refused().message) == ("E_COLUMN", "sample_train_aligned.csv has twice label")
    write(tmp_path, "sample_train_aligned", table[:1])
    assert refused().code == "E_EMPTY"
    with pytest.raises(UsageError, match="no column 'l_i_fea_11'"):
        published.convert(tmp_path, tmp_path / "out", without=["l_i_fea_11"])


@pytest.mark.parametrize("ending", [".csv.gz", ".tar.gz"])
def test_a_file_that_is_cut_off_is_refused_and_leaves_no_table(published: Any, tmp_path: Path, ending: str) -> None:
    made_up(published, tmp_path, {"sample_test": ending})
    path = tmp_path / f"sample_test{ending}"
    for whole in (path.read_bytes(), b"no archive"):
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UsageError, match=f"sample_test{ending} is damaged or not complete") as error:
            published.convert(tmp_path, tmp_path / "out")
        assert error.value.code == "E_FILE"
        assert list((tmp_path / "out").iterdir()) == []


def test_hidden_files_of_an_archive_are_passed_over(published: Any, tmp_path: Path) -> None:
    """As macOS adds them before each file."""
    made_up(published, tmp_path)
    whole = (tmp_path / "sample_test.csv").read_bytes()
    (tmp_path / "sample_test.csv").unlink()
    with tarfile.open(tmp_path / "sample_test.tar.gz", "w:gz") as archive:
        for name, data in (("data/._sample_test.csv", b"\0\5\x16\7"), ("data/sample_test.csv", whole)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    assert published.convert(tmp_path, tmp_path / "out").rows["test"] == 203


def test_the_job_holds_out_exactly_the_test_clicks(published: Any, tmp_path: Path) -> None:
    """The whole way, with a small network."""
    made_up(published, tmp_path)
    published.main([str(tmp_path), str(tmp_path / "out")])
    document = yaml.safe_load((tmp_path / "out" / "job.yaml").read_text())
    document["train"] |= {"bottom": [4], "active_bottom": [4], "embedding_size": 2, "batch_size": 64}
    (tmp_path / "out" / "job.yaml").write_text(yaml.safe_dump(document))
    job = load(tmp_path / "out" / "job.yaml", Job)
    given = {role: read_private(tmp_path / "out" / f"{role}.yaml") for role in ("active", "passive")}
    settings = trial_settings(job, {}, given=given)
    simulate(job, {}, tmp_path / "run", settings=settings, predictions=tmp_path / "said.csv", seed=1)
    rows = read(tmp_path / "said.csv")
    held_out = {row["sample_id"] for row in rows if row["rows"] == "held_out"}
    parts = {row["sample_id"]: row["part"] for row in read(tmp_path / "out" / "active.csv")}
    assert held_out == {row["sample_id"] for row in rows if parts[row["sample_id"]] == "1"}
    assert (len(held_out), len(rows)) == (203, 603)


@pytest.mark.parametrize(("aligned", "test"), [(400, 203), (2_643_000, 1_310_000), (7, 3), (3, 1), (1, 9)])
def test_the_share_holds_out_so_many(published: Any, aligned: int, test: int) -> None:
    rows = {"aligned": aligned, "nonaligned": 1, "test": test}
    last = published.Published({}, rows, {}).last
    assert int(np.ceil((aligned + test) * last)) == test
