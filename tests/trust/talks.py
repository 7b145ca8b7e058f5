"""Commands that ask their owner."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.node.nodes import FORKS, GENEROUS_S, Child
from vfl_node.cli import main


class Talk(Child):
    """``vfl-node`` with ``words``, which may ask its owner: forked as well, with the pipes of a :class:`subprocess.Popen`.

    Attributes:
        stdout: what it says, line by line.
        returncode: how it ended, once :meth:`communicate` has come back.
    """

    returncode: int | None = None

    def __init__(self, *words: str, folder: Path | None = None) -> None:
        pipes = [FORKS.Pipe(duplex=False) for _ in range(3)]
        (asked, self._answers), (said, says), (failed, fails) = pipes
        super().__init__(_talk, words, dict(os.environ), (asked, says, fails), folder or Path.cwd())
        for end in (asked, says, fails):
            end.close()  # so that the other ends hear when the process has ended
        self.stdout, self._error = (os.fdopen(os.dup(end.fileno())) for end in (said, failed))
        said.close()
        failed.close()

    def communicate(self, text: str = "", timeout: float = GENEROUS_S) -> tuple[str, str]:
        """Answer, and wait for its end: what else it has said, and what on standard error."""
        with suppress(BrokenPipeError):  # it ends without a question
            os.write(self._answers.fileno(), text.encode())
        self._answers.close()
        with self.stdout, self._error:
            said, why = self.stdout.read(), self._error.read()
        self.returncode = self.wait(timeout)
        return said, why


def _talk(words: Sequence[str], environment: dict[str, str], ends: Sequence[Any], folder: Path) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.argv = ["vfl-node", *words]
    main()
