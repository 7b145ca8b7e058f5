"""uvicorn in a thread of the node, on a port or the owner's socket; its start reports failure, its stop takes bounded time."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from vfl_node.errors import UsageError
from vfl_node.process.files import short_name
from vfl_node.web.connections import BoundedProtocol
from vfl_node.web.handshakes import serve_tls

STOP_S = 2.0
START_S = 10.0


class Server:
    """The HTTP port of a node, or its owner's socket. Not started yet.

    Args:
        app: the application to serve.
        host: address to listen on, or the path of the socket (0600, in a private folder), which is created again.
        port: 0 lets the system choose, see :attr:`port`; not used for a socket.
        tls: makes it https (:func:`vfl_node.web.handshakes.load_context`); None: it is plain.
    """

    def __init__(self, app: ASGIApp, host: str | Path, port: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._host = host
        config = uvicorn.Config(
            app,
            http=serve_tls(tls) if tls else BoundedProtocol,  # type: ignore[arg-type] # uvicorn only calls it
            loop="asyncio",
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)  # outside the main thread it does not handle signals
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """``host:port``, once it has started; or the path of the socket."""
        return f"{self._host}:{self.port}" if isinstance(self._host, str) else str(self._host)

    def start(self) -> None:
        """Listen, and serve until :meth:`stop`; returns once requests are answered.

        Raises:
            UsageError: the address cannot be used (``E_PORT``).
        """
        listener = self._listen()
        if isinstance(self._host, str):
            self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._thread.start()
        limit = time.monotonic() + START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < limit:
            time.sleep(0.005)
        if not self._server.started:
            raise UsageError(f"the HTTP port {self._host}:{self.port} does not start", code="E_PORT")

    def stop(self) -> None:
        """Stop within 2 s; running requests have one second to finish. Idempotent."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._server.force_exit = True
            if isinstance(self._host, Path):
                self._host.unlink(missing_ok=True)

    def _listen(self) -> socket.socket:
        if isinstance(self._host, Path):
            return _owners(self._host)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a port can be used again at once
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


def _owners(path: Path) -> socket.socket:
    """A Unix socket that only this user can connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # left by a node that was killed
        with short_name(path) as name:
            listener.bind(name)
        path.chmod(0o600)  # nobody else can enter its folder
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {path}: {error.strerror}", code="E_PORT", hint="see state_dir") from None
    return listener
