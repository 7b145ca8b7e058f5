"""What can be named in a job or in settings: this package's own things, and those of installed packages.

A package adds a trainer, say, by an entry point of the group ``vfl_node.trainers``; docs/extending.md shows one of each kind.
An entry is loaded when it is first used, so that looking at names imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import metadata
from typing import Any, Generic, TypeVar

from vfl_node.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Name → thing, loaded on first use.

    Args:
        group: of entry points, such as ``vfl_node.trainers``.
        own: name → ``module:attribute`` within this package.
    """

    def __init__(self, group: str, own: Mapping[str, str]) -> None:
        self.group = group
        self._own = dict(own)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _places(self) -> dict[str, str]:
        """Name → ``module:attribute``; this package's own first."""
        return self._own | {
            point.name: point.value for point in metadata.entry_points(group=self.group) if point.name not in self._own
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._places  # installed packages are looked through only where they may matter

    def __getitem__(self, name: str) -> T:
        """The thing of this name.

        Raises:
            KeyError: nothing has it.
            UsageError: the package that declares it cannot be loaded (``E_EXTENSION``).
        """
        if name not in self._loaded:
            place = self._own.get(name) or self._places[name]
            self._loaded[name] = load(place, what=f"{self.group} {name!r}")
        return self._loaded[name]


def load(place: str, *, what: str) -> Any:
    """The attribute at ``module:attribute``.

    Args:
        place: of it.
        what: it is, for errors.

    Raises:
        UsageError: there is no such module or attribute (``E_EXTENSION``).
    """
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"{what} cannot be loaded from {place}: {error}",
            code="E_EXTENSION",
            hint="install the package that has it in this node's environment, or correct the name",
            for_peer="a part that the job names cannot be loaded there",
        ) from None
