"""Where a node's log goes, and how much it says: ``log``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from vfl_node.configuration.models import Frozen

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "text"]


class LogSettings(Frozen):
    """What a node writes of what it does. No id, label or cell is in a line of any level."""

    level: LogLevel = Field(
        default="info", description="lines below this level are left out; the environment variable VFL_LOG_LEVEL goes before"
    )
    format: LogFormat = Field(default="auto", description="auto: text on a terminal, lines of JSON elsewhere")
    file: Path | None = Field(default=None, description="a file of this node's user alone (0600); None: standard error")
    max_mib: int = Field(default=100, ge=1, le=1 << 20, description="from this size on a new file begins, in MiB")
    keep: int = Field(default=10, ge=1, le=1000, description="how many earlier files are kept: FILE.1 is the newest")

    def relative_to(self, base: Path) -> LogSettings:
        """The same with its file in the folder ``base``."""
        return self.model_copy(update={"file": base / self.file}) if self.file else self
