"""Readers of a party's input by the name of its format (``data.format``).

A package adds one by an entry point of the group ``vfl_node.readers`` that names a callable: called with the
input's path and ``party=`` (this party's name, for errors), it returns a :class:`~vfl_node.data.readers.contract.Reader`.
"""

from __future__ import annotations

from vfl_node.configuration.registry import Registry
from vfl_node.data.readers.contract import OpenReader

_OPENING = "vfl_node.data.readers.opening"

READERS: Registry[OpenReader] = Registry(
    "vfl_node.readers",
    {
        "auto": f"{_OPENING}:open_auto",
        "csv": f"{_OPENING}:open_csv",
        "parquet": f"{_OPENING}:open_parquet",
        "arrow": f"{_OPENING}:open_arrow",
        "sql": f"{_OPENING}:open_sql",
    },
)
"""Format → what opens a file of it."""
