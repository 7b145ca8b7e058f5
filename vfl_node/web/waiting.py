"""Asking for predictions, and waiting for the answer for as long as somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from vfl_node.web.gate import may_still
from vfl_node.web.together import Together
from vfl_node.web.view import NodeView, PredictionView

SHORT_BYTES = 1 << 16
"""Requests of so many bytes are read together; a longer one lets none of them wait."""

LOOK_S = 1.0
"""How often the credentials of somebody who waits are looked at: a token may be revoked by another process."""


class AskedAtPort:
    """Asks for predictions of known records, on other threads.

    Args:
        view: the node.
    """

    def __init__(self, view: NodeView) -> None:
        self._view = view
        self._together = Together(self._ask_all)

    async def ask(self, model: str, body: bytes) -> PredictionView:
        """As :meth:`vfl_node.web.view.NodeView.predict`."""
        if len(body) > SHORT_BYTES:
            return await run_in_threadpool(self._view.predict, model, body)
        return await self._together.ask((model, body))

    def _ask_all(self, asked: Sequence[tuple[str, bytes]]) -> list[PredictionView | Exception]:
        found: list[PredictionView | Exception] = []
        for model, body in asked:
            try:
                found.append(self._view.predict(model, body))
            except Exception as error:  # noqa: BLE001 - the answer to this request alone
                found.append(error)
        return found


async def wait_for(prediction: PredictionView, request: Request) -> bool:
    """Wait until ``prediction`` is over (True), or who asks hangs up (False); its body must have been read.

    The thread that answers wakes the waiting task, and so does the end of the connection.

    Raises:
        HTTPException: who asks may do so no more (401).
    """
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def wake() -> None:
        with suppress(RuntimeError):  # the port has closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, over)

    prediction.call_when_over(wake)
    gone = asyncio.ensure_future(_end_of(request))
    try:
        while not (over.done() or gone.done()):
            await asyncio.wait((over, gone), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if not over.done() and not may_still(request):
                raise HTTPException(401)
        return over.done()
    finally:
        gone.cancel()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _end_of(request: Request) -> None:
    """Return when who asks has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
