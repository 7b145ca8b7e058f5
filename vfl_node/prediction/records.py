"""Records to predict, as a node's owner gives them, and the file that comes back."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.aggregate import merge_rows
from vfl_node.data.named import data_of
from vfl_node.data.readers.contract import Reader
from vfl_node.data.readers.opening import open_given, open_input
from vfl_node.data.reading import columns_for, table_of
from vfl_node.data.stored import rows_of
from vfl_node.data.tables import Table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.job import Job
from vfl_node.metrics.weighted import predict_classes
from vfl_node.prediction.jobs import predict_of
from vfl_node.roles import NUMBER_TASKS, Task
from vfl_node.settings.declared import Declared, declare_fitted
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.table import ROW_NUMBERS
from vfl_node.training.prediction.stored import StoredPredictor
from vfl_node.training.predictor import Predicted, predictor_of

_GIVEN = "the records to predict"
"""What errors call a request."""

_REQUEST = Data(path=Path(_GIVEN))

NO_NUMBERS: Mapping[str, str] = MappingProxyType({})

NO_FEATURES: Mapping[str, Any] = {
    "label": None,
    "image": None,
    "order": None,
    "group": None,
    "keys": {},
    **dict.fromkeys(ROW_NUMBERS),
}
"""What is not read of a table whose columns a model's encoder knows, and its image."""

NO_COLUMNS: Mapping[str, Declared] = {}

_OF_ROWS = ("aggregate", "columns", "missing", "thousands", "date_format")
"""What a table's settings say of its rows holds of records to predict, too, if several rows become one record."""


@dataclass(frozen=True)
class Records:
    """A file of records to predict.

    Attributes:
        table: its ids and the model's columns.
        text: the file as it was written.
        ids: its id columns.
        classes: names of the model's classes; empty where they have none, or are not this party's.
        threshold: of two classes, the probability from which on the second is predicted.
        task: of the model: what is predicted.
    """

    table: Table
    text: TextColumns
    ids: tuple[str, ...]
    classes: tuple[str, ...] = ()
    threshold: float = 0.5
    task: Task = "classification"

    def shared_csv(self, predictions: Predicted) -> bytes:
        """As :meth:`csv`; records that are not shared have no prediction."""
        everything = np.full((len(self.table), *predictions.probabilities.shape[1:]), np.nan)
        everything[predictions.rows] = predictions.probabilities
        return self.csv(everything)

    def csv(self, probabilities: NDArray[np.float64]) -> bytes:
        """The answer as CSV: ids as they were written, and for each record its probability, or one a class; or its number.

        If the classes have names, the predicted class stands in a last column, ``class``.

        Args:
            probabilities: float64[n] or [n, K]; NaN where there is none, which becomes an empty cell.
        """
        columns = probabilities.reshape(len(self.table), -1)
        several = columns.shape[1] > 1
        name = "prediction" if self.task in NUMBER_TASKS else "probability"
        names = [f"probability_{k}" for k in self.classes or range(columns.shape[1])] if several else [name]
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*self.ids, *names, *(["class"] if self.classes else [])])
        spelled = zip(*map(self.text.cells, self.ids), strict=True)
        likeliest = predict_classes(probabilities, self.threshold)
        for ids, row, place in zip(spelled, columns.tolist(), likeliest.tolist(), strict=True):
            there = row[0] == row[0]  # not NaN
            values = [*map(repr, row), *self.classes[place : place + 1]] if there else [""] * (len(row) + bool(self.classes))
            writer.writerow([*ids, *values])
        return file.getvalue().encode()


def read_records(
    settings: Settings,
    trained: Job,
    kinds: Mapping[str, Declared],
    source: Data,
    *,
    all_columns: bool,
    rows: Mapping[str, Declared] = NO_COLUMNS,
    reader: Reader | None = None,
    numbers: Mapping[str, str] = NO_NUMBERS,
) -> Records:
    """Read records with the columns that a model reads; other columns are left out.

    Args:
        settings: of this party.
        trained: the job that trained the model.
        kinds: column → what is declared of it, of those that the model reads.
        source: where the records are; it names the id columns.
        all_columns: whether every one of them must be there.
        rows: as for :func:`fit_source`.
        reader: of the records, closed here; None: of the input that ``source`` names.
        numbers: as :func:`numbers_read`.

    Raises:
        DataError: as :func:`vfl_node.data.reading.read_table`; a column is missing (``E_COLUMN``).
    """
    ids = (source.id,) if isinstance(source.id, str) else source.id
    form, party = trained.align.id_form, settings.name
    with closing(reader or open_input(source, party=party)) as opened:
        reader = merge_rows(opened, fit_source(source, kinds, rows, numbers), id_form=form, party=party, label=False)
        fitted = {name: declare_fitted(declared) for name, declared in kinds.items()}
        present: dict[str, Declared] = {name: fitted.get(name, "ignore") for name in reader.names if name not in ids}
        present = {name: kind for name, kind in present.items() if name not in numbers.values()}
        columns = {**present, **fitted} if all_columns else present
        changed = {**NO_FEATURES, **numbers, "columns": columns}  # the encoder knows the image
        as_read = source.of_records.model_copy(update=changed)
        text = columns_for(reader, as_read, id_form=form, needs_label=False, party=party)
    table = table_of(text, as_read, id_form=form, needs_label=False, party=party, task=trained.task)
    return Records(table, text, ids, task=trained.task)


def fit_source(
    source: Data, kinds: Mapping[str, Declared], rows: Mapping[str, Declared], numbers: Mapping[str, str] = NO_NUMBERS
) -> Data:
    """``source``, by which rows that become one record are read as those of the training were.

    Args:
        source: what the party's settings say of its table now.
        kinds: column of the records that the model reads → what is declared of it.
        rows: column of the rows → how the training has read it; empty of a model that stored nothing of it.
        numbers: as :func:`numbers_read`.

    Raises:
        DataError: what is taken of a column now is not for what it was in the training (``E_COLUMN``).
    """
    if source.aggregate is None:
        return source
    aggregate = source.aggregate.fit_to(kinds)
    fitted = {name: declare_fitted(declared) for name, declared in rows.items()}
    declared = {**aggregate.kinds_of_rows(kinds), **source.columns, **fitted}
    columns = {name: declared[name] for name in (*aggregate.columns, aggregate.order) if name in declared}
    try:
        for name in columns:
            aggregate.read_as(name, columns)
    except ValueError as error:
        raise DataError(
            f"rows of the records to predict cannot be read as in the training: {error}",
            code="E_COLUMN",
            hint="say data.aggregate as it was then, or train again",
        ) from None
    return source.model_copy(update={**NO_FEATURES, **numbers, "aggregate": aggregate, "columns": columns})


def kinds_read(trained: Job, stored: StoredPredictor, job: Job) -> Mapping[str, Declared]:
    """Column → what is declared of it, of those that are read of the requests that ``job`` answers.

    Args:
        trained: the job that trained the model.
        stored: what this party has stored of it for predictions.
        job: that predicts.
    """
    of_training = job.asker == job.parties.active and predict_of(job).rows == "known"  # its own columns, then, and no others
    return {} if of_training else predictor_of(trained.train).column_kinds(stored.encoder)


def numbers_read(trained: Job, stored: StoredPredictor, job: Job) -> Mapping[str, str]:
    """Number of each row → its column, of those that are read of records that are no records of the training; args as there."""
    train = trained.train
    if train is None or not train.traits.row_numbers or predict_of(job).rows == "known":
        return {}
    return predictor_of(train).row_numbers(stored.serving)


def read_request(
    settings: Settings,
    trained: Job,
    stored: StoredPredictor,
    job: Job,
    request: bytes,
    kinds: Mapping[str, Declared],
) -> Records:
    """Read a request of this node's owner, as :func:`read_records`.

    Args:
        settings: of this party.
        trained: the job that trained the model.
        stored: what this party has stored of it for predictions.
        job: that predicts.
        request: CSV.
        kinds: as :func:`kinds_read`.
    """
    own, new = data_of(settings, trained), predict_of(job).rows == "new"
    said = {key: getattr(own, key) for key in _OF_ROWS} if new and own.aggregate else {}
    source = _REQUEST.model_copy(update={"id": own.id, **said})  # made anew it would take four times as long
    reader = open_given(request, f"{settings.name}: {_GIVEN}")
    rows = rows_of(stored.encoder) if source.aggregate else NO_COLUMNS
    numbers = numbers_read(trained, stored, job)
    records = read_records(settings, trained, kinds, source, all_columns=new, rows=rows, reader=reader, numbers=numbers)
    return replace(records, classes=stored.classes, threshold=trained.evaluate.threshold)
