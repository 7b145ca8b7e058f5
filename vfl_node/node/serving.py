"""The process of a node: its ports, its signals, and its end."""

from __future__ import annotations

import os
import signal
import sys
import threading

import structlog

from vfl_node.engines.ray.checks import check_engine
from vfl_node.node.board import check_http, open_board
from vfl_node.node.faults import starting
from vfl_node.node.running import OWNERS_SOCKET, announce, withdraw
from vfl_node.node.service import Node
from vfl_node.process import failpoints
from vfl_node.process.counters import count_log_line
from vfl_node.process.log_file import LogFile
from vfl_node.process.logs import DEBUG_S, configure_logs, threshold
from vfl_node.process.machine import share_arenas
from vfl_node.process.notify import Watchdog, notify
from vfl_node.settings.logs import LogSettings
from vfl_node.settings.node import Settings
from vfl_node.web.access import Access, OwnersSocket
from vfl_node.web.app import create_app
from vfl_node.web.server import Server

log = structlog.get_logger()

SIGNALS_S = 0.5
"""How often the main thread wakes up: Python handles signals only there, but the system may deliver them to another thread."""


def serve(settings: Settings) -> None:
    """Run a node until SIGINT or SIGTERM; returns after an orderly stop.

    On SIGHUP it reads its policy again. On SIGUSR1 it logs every line for ten minutes, or no longer.

    Raises:
        VflError: the node cannot start.
    """
    share_arenas()
    check_http(settings)
    check_engine(settings.engine)
    configure_node_logs(settings.log)
    failpoints.arm(os.environ.get(failpoints.VARIABLE, ""), local=settings.local)
    os.umask(0o077)  # whatever a library writes for this node is its user's alone
    structlog.configure(processors=[count_log_line, *structlog.get_config()["processors"]])
    node = Node(settings)
    stopping, rereading, toggling = threading.Event(), threading.Event(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    signal.signal(signal.SIGHUP, lambda *_: rereading.set())
    signal.signal(signal.SIGUSR1, lambda *_: toggling.set())
    board, servers = None, []
    access = Access(node.token, party=settings.name, people=node.tokens)
    watchdog = Watchdog()
    try:
        with starting(settings.state_dir):
            bound = node.start()
            owners = create_app(node, token=OwnersSocket(access), tokens=node.tokens, audit=node.audit)
            servers.append(Server(owners, settings.state_dir / OWNERS_SOCKET))
            if settings.http:
                board = open_board(settings, node, access, tokens=node.tokens, audit=node.audit)
                servers.append(board)
            for server in servers:
                server.start()
            http = board.address if board else None
            announce(settings.state_dir, listen=bound, http=http, https=settings.http_tls is not None)
        notify("READY=1", f"STATUS={settings.name} ({settings.role}) is up")
        watchdog.start()
        while not stopping.wait(SIGNALS_S):
            watchdog.tick()
            node.tick()
            if rereading.is_set():
                rereading.clear()
                node.policies.reload()
            if toggling.is_set():
                toggling.clear()
                on = threshold.toggle_debug()
                log.warning("the log has every line now" if on else "the log is as its settings say", for_s=DEBUG_S * on)
    finally:
        notify("STOPPING=1")
        watchdog.stop()
        for server in servers:
            server.stop()
        node.stop()
        withdraw(settings.state_dir)


def configure_node_logs(settings: LogSettings) -> None:
    """Have this process log as ``settings`` say. Raises UsageError if the file cannot be opened (``E_FILE``)."""
    sink = None
    if settings.file:
        sink = LogFile(settings.file, settings.max_mib << 20, settings.keep, otherwise=_write_error)
    configure_logs(level=settings.level, form=settings.format, sink=sink)


def _write_error(text: str) -> None:
    """Write to what is standard error now."""
    sys.stderr.write(text)
    sys.stderr.flush()
