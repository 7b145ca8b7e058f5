"""A node that kills itself in the middle of a logistic regression, or of predictions, where a file tells it to.

:func:`run` becomes one, as :mod:`killed_node` does. Its folder holds ``death`` until it comes:
``MESSAGE STEP``, to die instead of sending that message of that iteration, or ``checkpoint STEP``,
to die when that one is stored; ``MESSAGE`` alone for one that has no iteration, ``PhaseEnd PHASE`` for the last of a
phase. Every job has the same seed at this party.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vfl_node.cli import main
from vfl_node.execution import folder as job_folder
from vfl_node.node import service, store  # noqa: F401 - what a node imports once it runs
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.transport.channel import Channel


def run(folder: Path, arguments: list[str], log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    send, save = Channel.send, FileCheckpoints.save

    def may_die(place: str) -> None:
        death = folder / "death"
        if death.exists() and death.read_text() == place:
            death.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    async def sends(channel: Channel, message: Any) -> None:
        step = f" {message.step}" if "step" in message.DESCRIPTOR.fields_by_name else ""
        phase = f" {channel.phase_name}" if message.DESCRIPTOR.name == "PhaseEnd" else ""
        may_die(f"{message.DESCRIPTOR.name}{step}{phase}")
        await send(channel, message)

    def saves(checkpoints: FileCheckpoints, name: str, *arguments: Any) -> None:
        save(checkpoints, name, *arguments)
        may_die(f"checkpoint {int(name[1:]) if name[1:].isdigit() else name}")

    Channel.send = sends  # type: ignore[method-assign]
    FileCheckpoints.save = saves  # type: ignore[method-assign]
    job_folder.secrets = SimpleNamespace(token_bytes=lambda count: folder.name.encode().ljust(count))
    sys.argv = ["vfl-node", *arguments]
    main()
