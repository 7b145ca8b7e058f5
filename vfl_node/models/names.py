"""Names of architectures, and where an owner's own are found."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

ModelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$")]
"""Lower-case letters, digits, inner underscores and hyphens."""

ModelPlace = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""``module:Class``."""
