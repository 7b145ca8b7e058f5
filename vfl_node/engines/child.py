"""The main function of a child of :class:`vfl_node.engines.processes.Processes`."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any


def serve(end: int) -> None:
    """Answer each block on the pipe, in order, until the other end is closed.

    To stop the node, its parent process is stopped. A signal to the whole group must not
    end the children while the parent is still finishing its work.

    Args:
        end: file descriptor of the child's end of the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(end)
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    key = None
    while True:
        answer, key = _answer(messages.get(), key)
        with suppress(OSError):  # the parent is gone, so this process ends, too
            connection.send_bytes(answer)


def _receive(connection: Connection, messages: SimpleQueue[bytes]) -> None:
    """Forward messages until the parent closes the pipe or is gone; then nobody waits for the current result."""
    try:
        while True:
            messages.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)
    finally:  # for example, memory is full: a child that cannot receive is of no use
        os._exit(1)


def _answer(message: bytes, key: Any) -> tuple[bytes, Any]:
    """The pickled (result, exception, traceback) of a block, and the key for the next one.

    Args:
        message: pickled (operation, the key where it is another than before, block).
        key: that of the block before.
    """
    try:
        operation, keys, block = ForkingPickler.loads(message)
        key = keys[0] if keys else key
        return bytes(ForkingPickler.dumps((operation(key, block), None, ""))), key
    except Exception as error:  # noqa: BLE001 - the parent raises it
        return bytes(ForkingPickler.dumps((None, survive_pickling(error), traceback.format_exc()))), key


def survive_pickling(error: Exception) -> Exception:
    """``error``, or another exception that names it where it cannot be pickled and read again."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001 - of any kind
        return RuntimeError(f"{type(error).__name__} in a worker process")
    return error
