"""A node that may open few descriptors; every job has the same seed at it (:mod:`killed_node`)."""

from __future__ import annotations

import resource
from pathlib import Path

import killed_node


def run(folder: Path, descriptors: int, arguments: list[str], log: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    killed_node.run(folder, arguments, log)
