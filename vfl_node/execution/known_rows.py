"""``vfl-node run --predictions``: what the trained model says of every shared record of the active party, in one file.

Only a run on one machine writes it, whose user has all tables anyway: all halves of the model are put together in this
process, and nothing is sent for it. Between two organisations it would be a disclosure: the embedding of every training row
under the final weights. There such predictions are asked for by a job with ``serve``, limited, and entered in the ledger
(docs/guides/give-predictions.md).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vfl_node.configuration.registry import load
from vfl_node.data.aggregate import merge_rows
from vfl_node.data.named import data_of
from vfl_node.data.tables import Table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import open_table
from vfl_node.job import Job
from vfl_node.metrics.weighted import predict_classes
from vfl_node.models import storage
from vfl_node.process.files import write_whole
from vfl_node.roles import NUMBER_TASKS
from vfl_node.settings.node import Settings
from vfl_node.training.predictor import KeptHalf, StoredModel


@dataclass(frozen=True)
class TrialParty:
    """One data party of a trial that has ended.

    Attributes:
        settings: its own.
        folder: of the job, in which it kept its half.
        whole: its table.
        table: the records of it that took part.
        in_memory: as :func:`vfl_node.execution.inputs.open_table` takes it.
    """

    settings: Settings
    folder: JobFolder
    whole: Table
    table: Table
    in_memory: Any = None


def check_predictable(job: Job) -> None:
    """Refuse, before the run starts, a job of which there is nothing to write.

    Raises:
        UsageError: it trains nothing, or its model gives the active party no predictions.
    """
    hint = "leave --predictions out"
    if job.train is None:
        raise UsageError("--predictions: this job only aligns, so there is no model to predict with", hint=hint)
    if not job.train.parts.joined:
        raise UsageError(f"--predictions: models of trainer {job.train.algorithm!r} cannot be put together here", hint=hint)
    if job.label_holder != "active":
        raise UsageError(
            "--predictions: in this job the passive party has the labels, and the active party never sees a score",
            hint=f"{hint}, or choose a flow in which the active party has the labels",
        )


def write_predictions(job: Job, parties: Mapping[str, TrialParty], out: Path) -> None:
    """Write ``out`` as CSV, for its user only (0600): a line for each record of the active party that was shared.

    Columns: the id columns as the table spells them; ``rows``: ``held_out``, ``validated`` or ``trained``; ``label``; and
    ``probability`` of class 1, or of more than two classes ``probability_0`` and so on; of a regression ``prediction``. Where
    classes have names, these stand for their numbers, and the predicted one in a last column ``class``. Lines are in the order
    of the table.

    Args:
        job: the job.
        parties: name → what each data party has.
        out: the file.

    Raises:
        StateError: a half is damaged (``E_STATE_CORRUPT``), or a table has changed during the run (``E_INPUT_CHANGED``).
        UsageError: the file cannot be written (``E_FILE``).
    """
    assert job.train is not None
    active = parties[job.parties.active]
    half, passives = _half(job, active), [_half(job, parties[name]) for name in job.parties.passive]
    view, stored, table = half.alignment, active.folder.predictor, active.table
    assert stored is not None
    positions = np.flatnonzero(view.owned)
    positions = positions[np.argsort(view.rows[positions])]
    predict = load(job.train.parts.joined, what=f"predictions of trainer {job.train.algorithm!r}")
    said = predict(half, passives, positions).reshape(len(positions), -1)
    used = np.full(len(positions), "trained", dtype=object)
    for use, rows_of_it in (("validated", stored.validated), ("held_out", stored.held_out)):
        used[np.isin(positions, np.array(rows_of_it or (), dtype=np.int64))] = use

    data = data_of(active.settings, job)
    ids = (data.id,) if isinstance(data.id, str) else data.id
    with closing(open_table(data, active.settings.name, active.in_memory)) as opened:
        one_each = merge_rows(opened, data, id_form=job.align.id_form, party=active.settings.name, label=False, features=False)
        text = TextColumns(one_each, text=ids)
    spelled = list(zip(*map(text.cells, ids), strict=True))
    place = {id_: row for row, id_ in enumerate(active.whole.ids)}
    assert table.labels is not None
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    classes, several = stored.classes, said.shape[1] > 1
    name = "prediction" if job.task in NUMBER_TASKS else "probability"
    names = [f"probability_{k}" for k in classes or range(said.shape[1])] if several else [name]
    writer.writerow([*ids, "rows", "label", *names, *(["class"] if classes else [])])
    likeliest = predict_classes(said if several else said[:, 0], job.evaluate.threshold)
    labels = table.labels[view.rows[positions]].tolist()
    spelled_labels = [classes[int(label)] if classes else repr(label).removesuffix(".0") for label in labels]
    rows = zip(view.rows[positions].tolist(), used.tolist(), spelled_labels, said.tolist(), likeliest.tolist(), strict=True)
    for row, use, label, values, of_class in rows:
        own, named = spelled[place[table.ids[row]]], classes[of_class : of_class + 1]
        writer.writerow([*own, use, label, *map(repr, values), *named])
    try:
        write_whole(out, file.getvalue().encode())
    except OSError as error:
        hint = "the reports are written; the same run with another --predictions writes this file, too"
        raise UsageError(f"cannot write {out}: {error.strerror}", code="E_FILE", hint=hint) from None


def _half(job: Job, party: TrialParty) -> KeptHalf:
    folder, settings = party.folder, party.settings
    aligned, stored = folder.load_alignment(job.parties.others(settings.name)), folder.predictor
    if aligned is None or stored is None:
        raise StateError(f"{settings.name} has not kept its half of the model", code="E_STATE_LOST", hint="run the trial again")
    if stored.input != party.table.digest().hex():
        raise StateError(
            f"the table of {settings.name} has changed during the run", code="E_INPUT_CHANGED", hint="run the trial again"
        )
    weights, _ = storage.load(folder.artefact("model.safetensors"))
    model = StoredModel(job.choose(stored.trial), weights, stored.encoder, stored.serving, settings.models)
    return KeptHalf(model, aligned[0], party.table, settings.protection.defences)
