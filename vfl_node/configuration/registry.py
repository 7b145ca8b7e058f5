"""What can be named in a job or in settings: this package's own things, and those of installed packages.

A package adds a trainer, say, by an entry point of the group ``vfl_node.trainers``; docs/guides/extend-it.md shows one of each
kind. An entry is loaded when it is first used, so that looking at names imports nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib import metadata
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from vfl_node.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Name → thing, loaded on first use.

    Args:
        group: of entry points, such as ``vfl_node.trainers``.
        own: name → ``module:attribute`` within this package.
        check: raises an error for a (name, thing) that does not keep to what the group asks for.
        renamed: name in an earlier version → name; both lead to the same thing.
    """

    def __init__(
        self,
        group: str,
        own: Mapping[str, str],
        *,
        check: Callable[[str, T], None] | None = None,
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.group = group
        self.renamed = renamed
        self._own = dict(own)
        self._check = check
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
        # installed packages are looked through only where they may matter
        return isinstance(name, str) and (name in self._own or name in self.renamed or name in self._places)

    def __getitem__(self, name: str) -> T:
        """The thing of this name.

        Raises:
            KeyError: nothing has it.
            UsageError: the package that declares it cannot be loaded, or used (``E_EXTENSION``).
        """
        name = self.renamed.get(name, name)
        if name not in self._loaded:
            place, what = self._own.get(name) or self._places[name], f"{self.group} {name!r}"
            thing: T = load(place, what=what)
            try:
                if self._check:
                    self._check(name, thing)
            except Exception as error:  # noqa: BLE001 - a check may run code of the package
                raise _unusable(f"{what} cannot be used: {place} {error}") from None
            self._loaded[name] = thing
        return self._loaded[name]

    def lasting(self, name: str) -> str:
        """The first name that a thing had: what reports and digests have, whatever it is called now."""
        return next((old for old, new in self.renamed.items() if new == name), name)

    @property
    def own(self) -> tuple[str, ...]:
        """The names of this package's own things."""
        return tuple(self._own)

    def usable(self, among: Container[str] | None = None) -> Iterator[tuple[str, T]]:
        """Each name (of those ``among`` them) with its thing, loaded one after the other; what cannot be loaded is left out."""
        for name in self:
            if among is not None and name not in among:
                continue
            with suppress(UsageError):
                yield name, self[name]

    def unusable(self) -> Iterator[UsageError]:
        """Why each of those that :meth:`usable` leaves out cannot be used; this package's own are not loaded for that."""
        for name in self:
            if name in self._own:
                continue
            try:
                self[name]
            except UsageError as error:
                yield error


def instance_of(kind: type[Any]) -> Callable[[str, Any], None]:
    """A check that refuses what is no instance of ``kind``."""

    def check(_: str, thing: object) -> None:
        if not isinstance(thing, kind):
            raise ValueError(f"is no {kind.__name__}")

    return check


def subclass_of(kind: type[Any] | str) -> Callable[[str, Any], None]:
    """A check that refuses what is no subclass of ``kind``, a class or the ``module:attribute`` of one that loads much."""

    def check(_: str, thing: object) -> None:
        base: type[Any] = load(kind, what="a class of this package") if isinstance(kind, str) else kind
        if not (isinstance(thing, type) and issubclass(thing, base)):
            raise ValueError(f"is no subclass of {base.__name__}")

    return check


def load(place: str, *, what: str) -> Any:
    """The attribute at ``module:attribute``.

    Args:
        place: of it.
        what: it is, for errors.

    Raises:
        UsageError: there is no such module or attribute, or its module fails (``E_EXTENSION``).
    """
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 - whatever the module of another package raises
        raise _unusable(f"{what} cannot be loaded from {place}: {str(error) or type(error).__name__}") from None


def check_there(place: str, *, what: str) -> None:
    """Raise as :func:`load` if another package's ``place`` cannot be loaded. What is this package's own is there."""
    if not place.startswith(f"{__name__.partition('.')[0]}."):
        load(place, what=what)


def _unusable(message: str) -> UsageError:
    return UsageError(
        message,
        code="E_EXTENSION",
        hint="install the package that has it in this node's environment, or correct the name",
        for_peer="a part that the job needs cannot be loaded there",
    )
