"""uvicorn in a thread of the node, with a start that can fail and a stop that ends."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn
from starlette.types import ASGIApp

from vfl_node.errors import UsageError

STOP_S = 2.0
START_S = 10.0


class Server:
    """The HTTP port of a node. Not started yet.

    Args:
        app: what it serves.
        host: address to listen on.
        port: 0 lets the system choose, see :attr:`port`.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self.port = port
        self._host = host
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)  # outside the main thread it leaves signals alone
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, and serve until :meth:`stop`; returns once requests are answered.

        Raises:
            UsageError: the address cannot be used (``E_PORT``).
        """
        listener = self._listen()
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._thread.start()
        limit = time.monotonic() + START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < limit:
            time.sleep(0.005)
        if not self._server.started:
            raise UsageError(f"the HTTP port {self._host}:{self.port} does not start", code="E_PORT")

    def stop(self) -> None:
        """End within 2 s, with a second's grace for requests under way. Idempotent."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._server.force_exit = True

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left can be taken again
            listener.bind((self._host, self.port))
            listener.listen(128)
        except (OSError, OverflowError) as error:
            listener.close()
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"cannot listen on HTTP port {self._host}:{self.port}: {reason}",
                code="E_PORT",
                hint="another program uses it, or the address is not of this machine: set another http address",
            ) from None
        return listener
