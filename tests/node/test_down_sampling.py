"""A job with ``align.at_most``: the larger party takes part with a fixed part of its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.errors import PolicyError, VflError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import DataInputs, set_up
from vfl_node.execution.simulation import simulate
from vfl_node.progress import Event, TrainingCostKnown
from vfl_node.report.envelope import Report
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.node import Data, Settings
from vfl_node.transport.memory import memory_channels

LINES = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\nevaluate: {test_fraction: 0.3}\n"


@pytest.fixture
def table(trial: Any) -> Table:
    return read_table(Data(path=trial.lab), id_form="text", needs_label=False, party="lab")


def part(trial: Any, table: Table, folder: Path, most: int | None, memory: MemoryOfOneRun | None = None) -> DataInputs:
    settings = Settings(name="lab", role="passive", insecure_loopback=True, listen="127.0.0.1:0")
    job = trial.job(f"align: {{at_most: {most or 'null'}}}\n{LINES}")
    memory = memory or MemoryOfOneRun(Randomness(b"s" * 32))
    own = Randomness(folder.name.encode().ljust(32))
    progress = LiveProgress("job", Stop())
    channels = {"clinic": memory_channels("lab", "clinic")[0]}
    memories = {"clinic": memory}
    return set_up(settings, job, "job", table, own, JobFolder(folder), progress, 1, memories, channels).data


def test_the_same_records_in_every_job_with_a_partner_and_the_whole_table_pinned(
    trial: Any, table: Table, tmp_path: Path
) -> None:
    memory = MemoryOfOneRun(Randomness(b"s" * 32))
    first, second = (part(trial, table, tmp_path / name, 100, memory) for name in ("first", "second"))
    for made in (first, second):
        assert made.whole is table  # whose digest is the input's
        assert made.table is not None
        assert len(made.table) == 100
    assert first.table.ids == second.table.ids
    larger = part(trial, table, tmp_path / "larger", 120)
    assert set(first.table.ids) < set(larger.table.ids) < set(table.ids)
    other = part(trial, table, tmp_path / "other", 100, MemoryOfOneRun(Randomness(b"o" * 32)))
    assert set(other.table.ids) != set(first.table.ids)
    assert part(trial, table, tmp_path / "all", None).table is table


def test_a_partner_gets_one_part_of_a_table_whatever_jobs_say(trial: Any, table: Table, tmp_path: Path) -> None:
    """Parts of 100, 99 and 98 lie within each other, and what two of them differ in is one record."""
    memory = MemoryOfOneRun(Randomness(b"s" * 32))
    part(trial, table, tmp_path / "first", 100, memory)
    for number, most in enumerate((99, 98, 101, None)):
        with pytest.raises(PolicyError) as caught:
            part(trial, table, tmp_path / f"{number}", most, memory)
        assert caught.value.code == "E_PROMISE"
        assert "100 records of this table" in caught.value.message
        assert "align.at_most: 100" in caught.value.hint
        assert "100" not in caught.value.for_peer
    assert part(trial, table, tmp_path / "again", 100, memory).table is not None
    whole = MemoryOfOneRun(Randomness(b"s" * 32))
    for name, most in (("none", None), ("many", 10_000), ("all", len(table))):  # three ways to say all
        assert part(trial, table, tmp_path / name, most, whole).table is table


def test_one_class_is_told_of_one_part_only(trial: Any, tmp_path: Path) -> None:
    """A peer that submits one ``at_most`` after another learns of one part at most whether it is of one class."""
    rare = read_table(Data(path=trial.clinic), id_form="text", needs_label=True, party="clinic")
    assert rare.labels is not None
    rare.labels[:] = 0
    rare.labels[:2] = 1
    memory, told = MemoryOfOneRun(Randomness(b"s" * 32)), []
    for most in range(50, 60):
        try:
            taken = part(trial, rare, tmp_path / f"{most}", most, memory).table
            told.append(taken and taken.labels is not None)
        except VflError as error:
            told.append((error.code, error.peer_code))
    assert told[0] in (True, ("E_ONE_CLASS", "E_DATA"))
    assert set(told[1:]) == {("E_PROMISE", "E_PROMISE")}
    with pytest.raises(PolicyError, match="this node's minimum is 50") as caught:
        part(trial, rare, tmp_path / "few", 49, MemoryOfOneRun(Randomness(b"s" * 32)))
    assert (caught.value.code, caught.value.peer_code) == ("E_TOO_FEW", "E_DATA")


def test_a_job_aligns_trains_and_reports_the_part(
    trial: Any, tmp_path: Path, seeds: dict[str, Randomness], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    monkeypatch.setattr(LiveProgress, "emit", lambda self, event: events.append(event))
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
    before, *after = [event.text for event in events if isinstance(event, TrainingCostKnown)]
    assert before.startswith("this job trains on the union: ")
    assert len(after) == 2  # each party's
    for remark in after:
        assert remark.startswith(f"training on the union: {trained} rows per epoch")
        assert f"the intersection would take {less} rows" in remark
    assert all("spectral" in report.training.epochs[0].attacks for report in reports)
