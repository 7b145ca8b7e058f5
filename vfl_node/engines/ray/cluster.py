"""The engine of a Ray cluster: blocks wait in this process as for threads, and a driver child passes them on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from vfl_node.engines.queued import BlockTask, Queue, QueuedEngine
from vfl_node.engines.ray.checks import check_engine
from vfl_node.engines.ray.link import Link
from vfl_node.engines.ray.sealing import name_of
from vfl_node.settings.engine import EngineSettings

_GRAIN = 64
"""Blocks of threads that are one here: 32,768 ladders take 200 ms, and passing them on a few."""

_LINKS: dict[EngineSettings, Link] = {}
_LINKING = threading.Lock()


class Cluster(QueuedEngine):
    """Workers of a Ray cluster, started with the first blocks; engines of one process share them.

    Args:
        settings: of kind ``ray``.
        build: describes this build, a function of this package; workers that say otherwise are refused.

    Raises:
        UsageError: as :func:`check_engine`.
    """

    grain = _GRAIN

    def __init__(self, settings: EngineSettings, build: Callable[[], str]) -> None:
        check_engine(settings)
        assert settings.workers
        build()  # now: files of the package may change while this process computes
        self._seat = seat = _Seat(settings, build)
        places = settings.workers * settings.slots
        super().__init__(places, ahead=2 * places, tend=partial(_tend, seat), interrupt=seat.leave)

    def close(self) -> None:
        """As :meth:`Engine.close`; the workers go when no other engine of this process has them."""
        super().close()
        self._seat.join()


class _Seat:
    """What one engine has of the workers: a place at their link, which is made anew when it is lost."""

    def __init__(self, settings: EngineSettings, build: Callable[[], str]) -> None:
        self._settings, self._build = settings, build
        self._link: Link | None = None
        self._left = False

    def compute(self, task: BlockTask) -> Any:
        name_of(task.operation)  # before anything is started for it
        with _LINKING:
            link = _LINKS.get(self._settings)
            if link is None or not link.sit(self):
                link = _LINKS[self._settings] = Link(self._settings, self._build)
                link.sit(self)
            self._link = link
        if self._left:  # it was closed meanwhile, by a finalizer perhaps
            link.leave(self)
        return link.compute(task, self)

    def leave(self) -> None:
        self._left = True
        if link := self._link:
            link.leave(self)

    def join(self) -> None:
        if link := self._link:
            link.join()


def _tend(seat: _Seat, queue: Queue) -> None:
    """Have one block after the other computed. Each place at a worker has such a thread; they do not keep the engine alive."""
    while task := queue.get():
        task.do(seat.compute)
        del task  # so that this waiting thread does not keep the result alive
