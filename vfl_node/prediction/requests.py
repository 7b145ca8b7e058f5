"""What a node's owner asks a model: files of records, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.errors import PeerError, PolicyError, UsageError, VflError
from vfl_node.prediction.records import Records
from vfl_node.process.counters import PREDICTION_SECONDS

MOST_WAITING = 64
"""Requests that may wait for their turn."""


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
