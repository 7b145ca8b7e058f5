"""What the process from which nodes are forked does once, and none of them again: half of the work of a node in a test."""

from __future__ import annotations

import gc

import typer.main

from tests.node import forked_node  # noqa: F401 - so that it is imported
from vfl_node.cli import app

_made = typer.main.get_command(app)  # of all commands and their options
typer.main.get_command = lambda _: _made  # type: ignore[assignment]
gc.collect()
gc.freeze()  # what is imported stays: no child goes through it, and so copies its pages
