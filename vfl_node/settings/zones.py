"""Time zones that an owner names."""

from __future__ import annotations

from datetime import timezone, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator


def zone_named(name: str) -> tzinfo:
    """The zone of this name. Raises ZoneInfoNotFoundError, ValueError or OSError where this machine does not know it."""
    return timezone.utc if name == "UTC" else ZoneInfo(name)  # the first needs no database of time zones


def _is_zone(name: str) -> str:
    try:
        zone_named(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f"{name[:64]!r} is no time zone that this machine knows: write one such as Europe/Zurich, or UTC"
        raise ValueError(text) from None
    return name


Zone = Annotated[str, AfterValidator(_is_zone)]
"""Name of a time zone that this machine knows."""
