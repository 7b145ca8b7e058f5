"""Part files, as Spark, Hive and Dask write one table: the rows of all parts, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.parts import Stamp
from vfl_node.errors import DataError
from vfl_node.settings.declared import DecimalSign

_TEXT, _TEXTS = "string", ("string", "large_string", "string_view")
"""Types of text, which differ in how long it may be: a column that repeats is read as another one than it was written as."""

_ALIKE = "all parts have the same columns, of the same types, and in CSV a first line that names them"


class PartFile(Protocol):
    """A file of the folder, wherever it is."""

    @property
    def name(self) -> str:
        """As errors name it."""


P = TypeVar("P", bound=PartFile)
P_contra = TypeVar("P_contra", bound=PartFile, contravariant=True)


class OpenPart(Protocol[P_contra]):
    """Opens one part."""

    def __call__(self, part: P_contra, **known: DecimalSign) -> Reader:
        """A reader of ``part``; the argument ``decimal`` is how a CSV writes decimals, if that is known of all parts."""


class FolderReader(Reader, Generic[P]):
    """A :class:`~vfl_node.data.readers.contract.Reader` of all files of a table, in the order that they are given in.

    One is open at a time. Lines and rows are those of the part, which errors name, and empty parts are skipped.

    Args:
        source: party and folder, as errors name them.
        parts: its files.
        open_part: opens one of them.
        watch: what the files are now; a reading begins and ends with the same. None: each part sees to that itself.

    Raises:
        DataError: no part has a row (``E_EMPTY``), a part has other columns than the first (``E_COLUMN``), is wrong itself, or
            has changed (``E_CSV``).
        StateError: the machine has a problem, not the folder.
    """

    repeatable = True

    def __init__(
        self,
        source: str,
        parts: Iterable[P],
        *,
        open_part: OpenPart[P],
        watch: Callable[[], Mapping[str, Stamp]] | None = None,
    ) -> None:
        self.source = source
        self._open_part = open_part
        self._watch, self._before = watch, watch() if watch else {}
        self._parts: list[P] = []
        for part in parts:
            with _skipping_empty(), closing(open_part(part)) as reader:
                self._add(part, reader)
        if not self._parts:
            raise self._empty()

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        self._check_same()
        some, kinds = False, dict[str, Any]()
        for part in self._parts:
            with _skipping_empty(), closing(self._open_part(part, decimal=self.decimal)) as reader:
                rows = 0
                for batch in reader.batches(columns):
                    _check_kinds(batch, kinds, reader.source)
                    some = True
                    lines = batch.lines or range(rows + 1, rows + 1 + batch.columns.num_rows)
                    rows += batch.columns.num_rows
                    yield RowBatch(batch.columns, lines, reader.source)
        self._check_same()
        if not some:
            raise self._empty()

    def close(self) -> None:
        """Nothing to do: a part is closed when it has been read."""

    def _add(self, part: P, reader: Reader) -> None:
        if not self._parts:
            self.names, self.unit = reader.names, reader.unit
        elif set(reader.names) != set(self.names):
            what = _difference(reader, self.names, self._parts[0].name)
            raise DataError(f"{reader.source}: {what}", code="E_COLUMN", hint=f"make it so that {_ALIKE}")
        if reader.decimal_known and self.decimal == ".":  # a part of whole numbers only does not tell
            self.decimal, self.decimal_known = reader.decimal, True
        self._parts.append(part)
        self.format = f"{reader.format} in {len(self._parts)} {'part' if len(self._parts) == 1 else 'parts'}"

    def _check_same(self) -> None:
        if self._watch is None or (now := self._watch()) == self._before:
            return
        name = next(each for each in sorted({*now, *self._before}) if now.get(each) != self._before.get(each))
        what = "is new" if name not in self._before else "changed" if name in now else "was removed"
        raise DataError(f"{self.source}: the part {name} {what} while the table was read", code="E_CSV", hint="begin again")

    def _empty(self) -> DataError:
        return DataError(f"{self.source}: has no rows", code="E_EMPTY")


def _difference(reader: Reader, names: Collection[str], first: str) -> str:
    """In what the columns of a part differ from ``names``, those of the ``first`` one.

    Columns are named by their numbers where the first line of a CSV may be a record.
    """
    lacks = [name for name in names if name not in reader.names]
    more = [name for name in reader.names if name not in names]
    shared = len(names) - len(lacks)
    if reader.unit == "line" and (shared <= max(len(lacks), len(more)) or any(map(_is_number, (*lacks, *more)))):
        place = list(names).index(lacks[0]) + 1 if lacks else reader.names.index(more[0]) + 1
        return f"has other columns than {first}: {'it lacks' if lacks else 'it alone has its'} column {place}"
    return f"has no column {lacks[0]!r}, which {first} has" if lacks else f"has a column {more[0]!r}, which {first} lacks"


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


@contextmanager
def _skipping_empty() -> Iterator[None]:
    """A part may have no rows, or not even a header."""
    try:
        yield
    except DataError as error:
        if error.code != "E_EMPTY":
            raise


def _check_kinds(batch: RowBatch, kinds: dict[str, Any], source: str) -> None:
    """Refuse a column whose type is not that of the parts before; ``kinds`` grows by those that are new."""
    for field in batch.columns.schema:
        kind = getattr(field.type, "value_type", field.type)  # of categories, whose codes may be wider in another part
        kind = _TEXT if str(kind) in _TEXTS else kind
        if kinds.setdefault(field.name, kind) != kind:
            raise DataError(
                f"{source}: column {field.name!r} is of the type {kind}, and of {kinds[field.name]} in the parts before",
                code="E_COLUMN",
                hint=f"make it so that {_ALIKE}",
            )
