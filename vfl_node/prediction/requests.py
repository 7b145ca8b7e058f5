"""What a node's owner asks a model, and what comes back: files of records, one after the other."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.aggregate import merge_rows
from vfl_node.data.named import data_of
from vfl_node.data.readers.contract import Reader
from vfl_node.data.readers.opening import open_given, open_input
from vfl_node.data.reading import columns_for, table_of
from vfl_node.data.tables import Table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import PeerError, PolicyError, UsageError, VflError
from vfl_node.job import Job
from vfl_node.metrics.weighted import predict_classes
from vfl_node.prediction.jobs import predict_of
from vfl_node.process.counters import PREDICTION_SECONDS
from vfl_node.roles import Task
from vfl_node.settings.declared import Declared, declare_fitted
from vfl_node.settings.node import Data, Settings
from vfl_node.training.prediction.stored import StoredPredictor
from vfl_node.training.predictor import Predicted, predictor_of

MOST_WAITING = 64
"""Requests that may wait for their turn."""

_GIVEN = "the records to predict"
"""What errors call a request."""

_REQUEST = Data(path=Path(_GIVEN))

NO_FEATURES: Mapping[str, Any] = {"label": None, "image": None, "order": None, "group": None, "keys": {}}
"""What is not read of a table whose columns a model's encoder knows, and its image."""

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
        name = "prediction" if self.task == "regression" else "probability"
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
    reader: Reader | None = None,
) -> Records:
    """Read records with the columns that a model reads; other columns are left out.

    Args:
        settings: of this party.
        trained: the job that trained the model.
        kinds: column → what is declared of it, of those that the model reads.
        source: where the records are; it names the id columns.
        all_columns: whether every one of them must be there.
        reader: of the records, closed here; None: of the input that ``source`` names.

    Raises:
        DataError: as :func:`vfl_node.data.reading.read_table`; a column is missing (``E_COLUMN``).
    """
    ids = (source.id,) if isinstance(source.id, str) else source.id
    form, party = trained.align.id_form, settings.name
    with closing(reader or open_input(source, party=party)) as opened:
        reader = merge_rows(opened, fit_source(source, kinds), id_form=form, party=party, label=False)
        fitted = {name: declare_fitted(declared) for name, declared in kinds.items()}
        present: dict[str, Declared] = {name: fitted.get(name, "ignore") for name in reader.names if name not in ids}
        columns = {**present, **fitted} if all_columns else present
        as_read = source.of_records.model_copy(update={**NO_FEATURES, "columns": columns})  # the encoder knows the image
        text = columns_for(reader, as_read, id_form=form, needs_label=False, party=party)
    table = table_of(text, as_read, id_form=form, needs_label=False, party=party)
    return Records(table, text, ids, task=trained.task)


def fit_source(source: Data, kinds: Mapping[str, Declared]) -> Data:
    """``source``, by which rows that become one record are read so that there are the columns that a model reads."""
    if source.aggregate is None:
        return source
    aggregate = source.aggregate.fit_to(kinds)
    declared = {**aggregate.kinds_of_rows(kinds), **source.columns}
    columns = {name: declared[name] for name in (*aggregate.columns, aggregate.order) if name in declared}
    return source.model_copy(update={**NO_FEATURES, "aggregate": aggregate, "columns": columns})


def kinds_read(trained: Job, stored: StoredPredictor, job: Job) -> Mapping[str, Declared]:
    """Column → what is declared of it, of those that are read of the requests that ``job`` answers.

    Args:
        trained: the job that trained the model.
        stored: what this party has stored of it for predictions.
        job: that predicts.
    """
    of_training = job.asker == job.parties.active and predict_of(job).rows == "known"  # its own columns, then, and no others
    return {} if of_training else predictor_of(trained.train).column_kinds(stored.encoder)


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
    records = read_records(settings, trained, kinds, source, all_columns=new, reader=reader)
    return replace(records, classes=stored.classes, threshold=trained.evaluate.threshold)


class PredictionRequest:
    """One request of the owner (:class:`vfl_node.training.predictor.Request`); asked and answered on different threads.

    Attributes:
        alone: whether it shares no exchange with others, because one that it had shared was refused.
    """

    def __init__(self, records: Records, model: str = "") -> None:
        self._model, self._asked = model, time.monotonic()
        self.table = records.table
        self.over = self.alone = False
        self._records = records
        self._outcome: bytes | VflError = b""
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def place(self, row: int) -> str:
        """The line of the owner's file where ``row`` of the table stands, or its row in a file without lines."""
        text = self._records.text
        return f"{text.unit} {text.line(row)}"

    def answer(self, probabilities: NDArray[np.float64]) -> None:
        """The predictions, float64[n] or [n, K]."""
        PREDICTION_SECONDS.series(self._model).observe(time.monotonic() - self._asked)
        self._end(self._records.csv(probabilities))

    def fail(self, error: VflError) -> None:
        """There are no predictions, because of ``error``."""
        self._end(error)

    def ready(self) -> bytes | None:
        """The predictions as CSV; None before they are there. Raises VflError where there are none."""
        if not self.over:
            return None
        if isinstance(self._outcome, VflError):
            raise self._outcome
        return self._outcome

    def call_when_over(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once :meth:`ready` has something to say: at once, or on the thread that answers."""
        with self._lock:
            if not self.over:
                self._listeners.append(listener)
                return
        listener()

    def withdraw(self) -> None:
        """Nobody waits for it any more; it is skipped if it has not begun."""
        self._end(VflError("withdrawn"))

    def _end(self, outcome: bytes | VflError) -> None:
        with self._lock:
            if self.over:
                return
            self._outcome, self.over = outcome, True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


class Requests:
    """The owner's requests, a :class:`~vfl_node.training.predictor.RequestQueue`; safe for several threads.

    Args:
        model: id of the job that trained the model, for metrics.

    Attributes:
        ask_again: gets those that another service may answer when this one has ended; None: they are told why it has.
    """

    def __init__(self, model: str = "") -> None:
        self._model = model
        self.ask_again: Callable[[list[PredictionRequest]], None] | None = None
        self._lock = threading.Lock()
        self._waiting: list[PredictionRequest] = []
        self._taken: list[PredictionRequest] = []
        self._end: VflError | None = None
        self._closed = False
        self.bell = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether no more requests are taken and the service ends once all are answered."""
        return self._closed

    def ask(self, records: Records) -> PredictionRequest:
        """Add a request.

        Raises:
            PolicyError: too many wait (``E_BUSY``).
            VflError: why the service has ended, or ends.
        """
        with self._lock:
            self._check_open()
            self._waiting = [request for request in self._waiting if not request.over]
            if len(self._waiting) >= MOST_WAITING:
                raise PolicyError(f"{MOST_WAITING} requests wait already", code="E_BUSY", hint="ask again later")
            request = PredictionRequest(records, self._model)
            self._waiting.append(request)
        self.bell.set()
        return request

    def add_first(self, requests: list[PredictionRequest]) -> None:
        """Have those answered first that waited for another service. Raises VflError as :meth:`ask`."""
        with self._lock:
            self._check_open()
            self._waiting = [*requests, *self._waiting]
        self.bell.set()

    def _check_open(self) -> None:
        if self._end or self._closed:
            raise self._end or UsageError("the predictions are being cancelled", code="E_JOB_ENDED", hint="ask again")

    def take(self) -> PredictionRequest | None:
        """The first request that is not answered yet, so the same one until it is; None if there is none."""
        return next(iter(self.take_all()), None)

    def take_all(self) -> list[PredictionRequest]:
        """All requests that are not answered yet, the oldest first, so the same ones until they are; or one that is alone."""
        with self._lock:
            waiting = self._waiting = [request for request in self._waiting if not request.over]
            one = waiting[:1] if waiting and waiting[0].alone else []
            self._taken = one or [request for request in waiting if not request.alone]
            return list(self._taken)

    def close(self) -> None:
        """Take no more requests, so that the service ends once all are answered."""
        with self._lock:
            self._closed = True
        self.bell.set()

    def end(self, error: VflError) -> None:
        """The service has ended: whoever waits is told why.

        Where an exchange was refused, only a request that was alone in it is. The others ask again: those that shared the
        exchange one by one, because nobody here knows for which of them it was refused. Nothing of it was answered.
        """
        with self._lock:
            self._end = error
            waiting = [request for request in self._waiting if not request.over]
            taken = [request for request in self._taken if not request.over]
            self._waiting = []
            again = waiting if taken and _is_refusal(error) and not self._closed and self.ask_again else []
            if len(taken) > 1:
                for request in taken:
                    request.alone = True
            else:
                again = [request for request in again if request not in taken]
        for request in waiting:
            if request not in again:
                request.fail(error)
        if again and self.ask_again:
            self.ask_again(again)


def _is_refusal(error: VflError) -> bool:
    """Whether the owner of some party does not allow what was asked for, as far as one can tell from here."""
    return isinstance(error, PolicyError) or (type(error) is PeerError and error.code == PeerError.default_code)
