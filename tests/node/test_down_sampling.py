"""A job with ``align.at_most``: the larger party takes part with a fixed part of its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.alignment.alignment import MemoryOfOneRun
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table, read_table
from vfl_node.node.live import LiveProgress, Stop
from vfl_node.node.party import Part
from vfl_node.node.simulation import simulate
from vfl_node.node.store import JobFolder
from vfl_node.report import Report
from vfl_node.settings import Data, Settings

LINES = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\nevaluate: {test_fraction: 0.3}\n"


@pytest.fixture
def table(trial: Any) -> Table:
    return read_table(Data(path=trial.lab), id_form="text", needs_label=False, party="lab")


def part(trial: Any, table: Table, folder: Path, most: int | None, secret: bytes = b"s" * 32) -> Part:
    settings = Settings(name="lab", role="passive", insecure_loopback=True, listen="127.0.0.1:0")
    job = trial.job(f"align: {{at_most: {most or 'null'}}}\n{LINES}")
    memory = MemoryOfOneRun(Randomness(secret))
    own = Randomness(folder.name.encode().ljust(32))
    progress = LiveProgress("job", Stop())
    return Part.on_this_machine(settings, job, "job", table, own, JobFolder(folder), progress, 1, memory)


def test_the_same_records_in_every_job_with_a_partner_and_the_whole_table_pinned(
    trial: Any, table: Table, tmp_path: Path
) -> None:
    first, second = (part(trial, table, tmp_path / name, 100) for name in ("first", "second"))
    for made in (first, second):
        assert made.whole is table  # whose digest is the input's
        assert made.table is not None
        assert len(made.table) == 100
    assert first.table.ids == second.table.ids
    larger = part(trial, table, tmp_path / "larger", 120)
    assert set(first.table.ids) < set(larger.table.ids) < set(table.ids)
    other = part(trial, table, tmp_path / "other", 100, b"o" * 32)
    assert set(other.table.ids) != set(first.table.ids)
    assert part(trial, table, tmp_path / "all", None).table is table


def test_a_job_aligns_trains_and_reports_the_part(
    trial: Any, tmp_path: Path, seeds: dict[str, Randomness], monkeypatch: pytest.MonkeyPatch
) -> None:
    remarks: list[str] = []
    monkeypatch.setattr(LiveProgress, "remark", lambda self, text: remarks.append(text))
    job = trial.job(f"align: {{at_most: 100}}\n{LINES}")
    simulate(job, trial.files, tmp_path, randomness=seeds)
    reports = [Report.model_validate_json((tmp_path / name).read_text()) for name in ("report.json", "lab/report.json")]
    for report in reports:
        sizes = report.alignment
        assert (sizes.records, sizes.ours, sizes.theirs) == (160, 100, 100)
        assert sizes.intersection < trial.shared
        assert sizes.rows == 200 - sizes.intersection
    union, common = reports[0].alignment.rows, reports[0].alignment.intersection
    trained, less = union - -(-3 * union // 10), common - -(-3 * common // 10)
    assert len(remarks) == 2  # each party's
    for remark in remarks:
        assert remark.startswith(f"training on the union: {trained} rows an epoch")
        assert f"the intersection would take {less} rows" in remark
    assert all("spectral" in report.training.epochs[0].attacks for report in reports)
