"""Stored documents say which version of their form they are; this version of the program reads earlier ones, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from vfl_node.errors import StateError

Document = dict[str, Any]

Steps = Mapping[int, Callable[[Document], Document]]
"""Version n → what makes a document of version n + 1 of one of version n."""


def current(document: Mapping[str, Any], newest: int, steps: Steps, *, what: str, hint: str) -> Document:
    """``document`` in the form of version ``newest``, its number left out; one without a number is of version 1.

    Args:
        document: as it was stored.
        newest: version that this program writes.
        steps: from each version that it still reads to the next.
        what: is stored, for errors, such as ``the encoder``.
        hint: what its owner can do if it cannot be read.

    Raises:
        StateError: a later version wrote it, or one from which no step leads (``E_STATE_VERSION``); its number is none
            (``E_STATE_CORRUPT``).
    """
    content = dict(document)
    version = content.pop("version", 1)
    if isinstance(version, bool) or not isinstance(version, int):
        raise damage_error(what, hint)
    for step in range(version, newest):
        if step not in steps:
            break
        content, version = steps[step](content), step + 1
    if version != newest:
        by = "a later" if version > newest else "an earlier"
        raise StateError(
            f"{what} was stored by {by} vfl-node, in version {version} of its form; this one reads version {newest}",
            code="E_STATE_VERSION",
            hint=hint,
            for_peer=f"what it stored is of {by} version",
        )
    return content


def parse(text: str, newest: int, steps: Steps, *, what: str, hint: str) -> Document:
    """As :func:`current`, of a document in JSON.

    Raises:
        StateError: as :func:`current`, or it is not a JSON object (``E_STATE_CORRUPT``).
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise damage_error(what, hint) from None
    if not isinstance(document, dict):
        raise damage_error(what, hint)
    return current(document, newest, steps, what=what, hint=hint)


def damage_error(what: str, hint: str) -> StateError:
    """What is raised where a stored document is not what was written."""
    return StateError(f"{what} is damaged", code="E_STATE_CORRUPT", hint=hint, for_peer="what it stored is damaged")
