"""Names of architectures, and where an owner's own are found."""

from __future__ import annotations

from typing import Annotated

from vfl_node.configuration.models import text_like

ModelName = Annotated[
    str,
    text_like(
        r"^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$",
        "a name: 1 to 63 small letters, digits, underscores and hyphens that begin and end with a letter or digit",
    ),
]

ModelPlace = Annotated[str, text_like(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a module and a class in it, such as mymodels:Gated")]
"""``module:Class``."""
