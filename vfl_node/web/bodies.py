"""What comes with a request, as far as it may be long."""

from __future__ import annotations

from starlette.requests import Request


async def read_body(request: Request, most: int) -> bytes | None:
    """The body of the request; None if it has more than ``most`` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)
