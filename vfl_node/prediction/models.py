"""A party's half of a trained model, as its training has left it in the folder of its job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.marks import Marks
from vfl_node.data.named import table_name
from vfl_node.data.tables import Table, prune_levels
from vfl_node.errors import StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input, select_records
from vfl_node.job import Job
from vfl_node.models import storage
from vfl_node.process.files import read_checked
from vfl_node.session.memory import Memory, mark_secret
from vfl_node.settings.node import Settings
from vfl_node.training.prediction.stored import StoredPredictor
from vfl_node.training.predictor import StoredModel, predictor_of


@dataclass(frozen=True)
class Model:
    """One party's half of a trained model, and what was stored with it.

    Attributes:
        stored: that half.
        alignment: it was trained on.
        input_digest: of this party's records that took part.
        shown: file with the rows about which others were told.
        rows: file with the marks of those records; an earlier version kept none.
        columns: file with how the columns of those records lay; likewise.
    """

    stored: StoredModel
    alignment: Alignment
    input_digest: bytes
    shown: Path
    rows: Path
    columns: Path

    @property
    def job(self) -> Job:
        """The job that trained it."""
        return self.stored.job


def load_model(settings: Settings, trained: Job, folder: JobFolder, stored: StoredPredictor) -> Model:
    """The half that this node has of a model.

    Args:
        settings: of this party.
        trained: the job that trained it.
        folder: of that job.
        stored: what was stored there for predictions.

    Raises:
        StateError: it is not whole (``E_STATE_LOST``, ``E_STATE_CORRUPT``), or another version stored it
            (``E_STATE_VERSION``).
        UsageError: this node no longer has its architecture (``E_EXTENSION``).
    """
    aligned = folder.load_alignment(trained.parties.others(settings.name))
    if aligned is None:
        hint = "restore it from a backup, or train again"
        raise StateError(f"the alignment of job {folder.path.name} is gone", code="E_STATE_LOST", hint=hint)
    weights, _ = storage.load(folder.artefact("model.safetensors"))
    trained = trained.choose(stored.trial)
    half = StoredModel(trained, weights, stored.encoder, stored.serving, settings.models, table_name(settings, trained))
    predictor_of(trained.train).check(half)
    return Model(half, aligned[0], bytes.fromhex(stored.input), folder.shown, folder.rows, folder.columns)


def records_of(model: Model, settings: Settings, memory: Memory) -> Table:
    """The records that the model was trained on, in their order then, from a table that may have grown since.

    Args:
        model: this party's half.
        settings: of this party.
        memory: of all its peers in the job together.

    Raises:
        StateError: one of them has changed or is gone (``E_INPUT_CHANGED``), or their marks are damaged (``E_STATE_CORRUPT``).
        DataError: the table cannot be used.
    """
    job, table = model.job, read_input(settings, model.job)
    try:
        trained = Marks.from_bytes(read_checked(model.rows, hint="restore it from a backup, or train again"))
    except FileNotFoundError:
        part = select_records(table, job.align, memory, settings.limits_for(job), settings.name)
        before, after = model.input_digest.hex(), part.digest().hex()
        if before != after:
            raise _change_error(job, f"digest {before[:12]}…, now {after[:12]}…") from None
        return part
    now = Marks.from_table(table, mark_secret(memory))
    growth = trained.compare(now)
    if growth.changed or growth.common < len(trained):
        gone = len(trained) - growth.common
        raise _change_error(job, f"of {len(trained):,} records {growth.changed:,} have other cells and {gone:,} are gone")
    return prune_levels(table.take(trained.find_in(now)))


def _change_error(job: Job, how: str) -> StateError:
    return StateError(
        f"the table has changed since job {job.name} trained on it: {how}",
        code="E_INPUT_CHANGED",
        hint="put the records of then back, and what the settings said under data (and state/partners); rows may be added; "
        "new records are predicted with --align",
        for_peer="its table has changed since training",
    )
