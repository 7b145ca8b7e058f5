"""Waiting for the answer to a request for predictions, for as long as somebody wants it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request

from vfl_node.web.gate import may_still
from vfl_node.web.view import PredictionView

LOOK_S = 1.0
"""How often the credentials of somebody who waits are looked at: a token may be revoked by another process."""


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
