"""What the process from which nodes are forked does once, and none of them again: half of the work of a node in a test."""

from __future__ import annotations

import gc
import importlib

import typer.main

from tests.node import forked_node  # noqa: F401 - so that it is imported
from vfl_node.cli import app
from vfl_node.report import page

IN_ITS_FIRST_JOB = (
    "_strptime",
    "anyio._backends._asyncio",
    "grpc._channel",
    "grpc._server",
    "pandas",  # by pyarrow, where it is there
    "pyarrow.pandas_compat",
    "safetensors.torch",
    "torch.fx.experimental.symbolic_shapes",  # by its first step backward, with all of sympy
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
)
"""What libraries import when a node first does something: half of the work of a small job."""

for _name in IN_ITS_FIRST_JOB:
    importlib.import_module(_name)
_pages, _ = page._environment()
for _name in _pages.list_templates(["j2"]):
    _pages.get_template(_name)  # is compiled: else by each node that has a report
_made = typer.main.get_command(app)  # of all commands and their options
typer.main.get_command = lambda _: _made  # type: ignore[assignment]
gc.collect()
gc.freeze()  # what is imported stays: no child goes through it, and so copies its pages
