"""The rows of a query: in DuckDB, which reads databases of its own and files, or in any database that SQLAlchemy knows.

A driver's text of an error may show an address, a password, parameters and cells. So our errors say which class of error the
driver raised; the driver's own text is shown only for mistakes in the statement itself, before any row is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow as pa
from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.names import column_names
from vfl_node.data.readers.typed import BATCH_ROWS, typed_batches
from vfl_node.errors import DataError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from vfl_node.settings.password import Password

_EXPLAINED = frozenset({"sqlite", "postgresql", "mysql", "mariadb"})
"""Databases that look at a statement without reading a row (``EXPLAIN``)."""

_WITH_TEXT = (str, int, float, bool, Decimal, date, datetime, time, UUID)


def open_query(query: str, *, database: str, password: Password | None, party: str) -> Reader:
    """A reader of the rows of a query.

    Args:
        query: one SELECT.
        database: ``duckdb://`` (in memory, for files), ``duckdb:///FILE`` or a URL of SQLAlchemy, without a password.
        password: where the password is.
        party: this party's name, for errors.

    Raises:
        UsageError: the package that reads the database is not installed (``E_EXTENSION``), or there is no password
            (``E_CONFIG``).
        DataError: the database cannot be read, or refuses the query (``E_SQL``), or a column has no name (``E_CSV``).
    """
    source = f"{party}: data.query"
    if urlsplit(database).scheme == "duckdb":
        return DuckDbReader(query, database, source)
    secret = None if password is None else password.read(party, "data.database_password")
    return SqlReader(query, database, secret, source)


class DuckDbReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a query in DuckDB. Args: as :func:`open_query`."""

    format = "query in DuckDB"

    def __init__(self, query: str, database: str, source: str) -> None:
        try:
            import duckdb
        except ImportError:
            raise _not_installed(source, "duckdb", "vfl-node[sql]") from None
        self.source = source
        path = urlsplit(database).path[1:]
        self._errors = duckdb.Error
        self._told = (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException)
        no_downloads: dict[str, Any] = {"autoinstall_known_extensions": False}
        try:
            self._connection = duckdb.connect(path or ":memory:", read_only=bool(path), config=no_downloads)
        except duckdb.Error as error:
            hint = "data.database is duckdb:///FILE; no other program may have the file open to write"
            raise DataError(f"{source}: DuckDB cannot open its file ({_class_of(error)})", code="E_SQL", hint=hint) from None
        try:
            result = self._connection.sql(query)
            if result is None:
                raise _no_rows_from(source)
            self._rows = result.to_arrow_reader(BATCH_ROWS)
            self.names = column_names(self._rows.schema.names, source)
        except duckdb.Error as error:
            self.close()
            raise self._refusal(error) from None
        except BaseException:
            self.close()
            raise

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        try:
            yield from typed_batches(self._rows, self.names, columns, self.source)
        except (self._errors, pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _refusal(self, error: Exception) -> DataError:
        return _refusal(self.source, error, str(error) if isinstance(error, self._told) else "")


class SqlReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a query by SQLAlchemy. Args: as :func:`open_query`."""

    def __init__(self, query: str, database: str, password: str | None, source: str) -> None:
        try:
            import sqlalchemy
            from sqlalchemy.pool import NullPool
        except ImportError:
            raise _not_installed(source, "sqlalchemy", "vfl-node[sql]") from None
        self.source, self._query = source, query
        self.format = f"query in {database.partition(':')[0]}"
        self._errors = sqlalchemy.exc.SQLAlchemyError
        try:
            url = sqlalchemy.make_url(database)
            url = url if password is None else url.set(password=password)
            self._engine: Engine = sqlalchemy.create_engine(url, poolclass=NullPool, hide_parameters=True)
        except ImportError as error:
            driver = error.name or "the driver"
            raise _not_installed(source, driver, driver) from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            hint = "data.database is duckdb:///FILE, or a URL of SQLAlchemy such as postgresql+psycopg://USER@HOST/DATABASE"
            raise DataError(f"{source}: data.database cannot be used ({_class_of(error)})", code="E_SQL", hint=hint) from None
        self._connection = self._connect()
        try:
            self._result = self._connection.exec_driver_sql(query)
            if not self._result.returns_rows:
                raise _no_rows_from(source)
            self.names = column_names(self._result.keys(), source)
        except sqlalchemy.exc.SQLAlchemyError as error:
            self.close()
            raise _refusal(source, error, self._mistake()) from None
        except BaseException:
            self.close()
            raise

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        try:
            yield from typed_batches(self._fetch(), self.names, columns, self.source)
        except self._errors as error:
            raise _refusal(self.source, error, "") from None

    def close(self) -> None:
        """Close the connection; what the query may have changed is undone."""
        self._connection.close()

    def _connect(self) -> Connection:
        try:
            connection = self._engine.connect()
        except self._errors as error:
            raise DataError(
                f"{self.source}: the database cannot be reached, or refuses the user ({_class_of(error)})",
                code="E_SQL",
                hint="data.database names its host, port, user and database; data.database_password where the password is",
            ) from None
        return connection.execution_options(stream_results=True, max_row_buffer=BATCH_ROWS, no_parameters=True)

    def _fetch(self) -> Iterator[pa.RecordBatch]:
        while rows := self._result.fetchmany(BATCH_ROWS):
            arrays = [_array(cells, name, self.source) for cells, name in zip(zip(*rows, strict=True), self.names, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self.names))

    def _mistake(self) -> str:
        """What the database says against the statement, if it does so without a row; then the text shows no cell."""
        if self._engine.dialect.name not in _EXPLAINED:
            return ""
        try:
            with closing(self._connect()) as connection:
                connection.exec_driver_sql(f"EXPLAIN {self._query}").close()
        except self._errors as error:
            return str(getattr(error, "orig", None) or "")
        return ""


def _array(cells: tuple[Any, ...], name: str, source: str) -> pa.Array:
    """Cells of one column; as text where they are of several types, which some databases allow."""
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        if not all(cell is None or isinstance(cell, _WITH_TEXT) for cell in cells):
            raise DataError(
                f"{source}: column {name!r} holds neither numbers nor text",
                code="E_COLUMN",
                hint=f"leave it out of the query, or make it text: CAST({name} AS text)",
            ) from None
        return pa.array([None if cell is None else _text(cell) for cell in cells], pa.string())


def _text(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _class_of(error: Exception) -> str:
    """The class of a driver's error and its SQLSTATE, if it has one."""
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return f"{type(cause).__name__} {state}" if isinstance(state, str) else type(cause).__name__


def _refusal(source: str, error: Exception, text: str) -> DataError:
    what = f"the database refuses the query ({_class_of(error)})"
    return DataError(
        f"{source}: {what}{f': {text.splitlines()[0]}' if text else ''}",
        code="E_SQL",
        hint="try the query in the database's own program; its text is not shown here where it may hold cells",
    )


def _no_rows_from(source: str) -> DataError:
    return DataError(f"{source}: is not a query that gives rows", code="E_SQL", hint="write one SELECT")


def _not_installed(source: str, module: str, package: str) -> UsageError:
    return UsageError(f"{source}: needs {module}, which is not installed", code="E_EXTENSION", hint=f"pip install '{package}'")
