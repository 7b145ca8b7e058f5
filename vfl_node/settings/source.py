"""Where a party's table comes from: a file, or the rows of a query in a database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator
from typing_extensions import Self

from vfl_node.configuration.models import Frozen, name_in, text_like
from vfl_node.configuration.registry import Registry

_OPENING = "vfl_node.data.readers.opening"

READERS: Registry[Callable[..., Any]] = Registry(
    "vfl_node.readers",
    {
        "auto": f"{_OPENING}:open_auto",
        "csv": f"{_OPENING}:open_csv",
        "parquet": f"{_OPENING}:open_parquet",
        "arrow": f"{_OPENING}:open_arrow",
        "sql": f"{_OPENING}:open_sql",
    },
)
"""``data.format`` → what opens a file of it (:class:`vfl_node.data.readers.contract.OpenReader`).

A package adds one by an entry point of the group ``vfl_node.readers`` that names a callable: called with the input's path and
``party=`` (this party's name, for errors), it returns a :class:`~vfl_node.data.readers.contract.Reader`.
"""

Delimiter = Annotated[str, text_like(r"^[\t!#$%&*,/:;<=>?@^_|~]$", "one character that separates cells, such as ';'")]

_SECRET = re.compile(r"(?i)(password|passwd|pwd|token|secret)[^&=]*=")


OF_A_QUERY = ("query", "database", "database_password")
"""Keys of a source that a file does not have."""


class Password(Frozen):
    """Where a password is: in a variable of the environment, or in a file. The password itself is in no settings."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Password:
        if (self.env is None) == (self.file is None):
            raise ValueError("say where the password is: {env: NAME} or {file: PATH}")
        return self


def no_password_itself(value: object) -> object:
    """Refuse a password in place of where it is, without repeating it."""
    if value is not None and not isinstance(value, Mapping | Password):
        raise ValueError("say where the password is, not the password: {env: NAME} or {file: PATH}")
    return value


class DataSource(Frozen):
    """Where a party's table comes from."""

    model_config = ConfigDict(hide_input_in_errors=True)

    path: Path | None = Field(
        default=None,
        description="the table: a file of CSV, Parquet or Arrow, or a folder of such parts; CSV may be compressed by gzip "
        "or zstd",
    )
    query: str | None = Field(default=None, min_length=1, description="instead of path: a SELECT whose rows are the table")
    database: str = Field(
        default="duckdb://",
        description="where the query runs: duckdb:///FILE, duckdb:// (DuckDB over files that the query names), or a URL of "
        "SQLAlchemy without its password",
    )
    database_password: Annotated[Password, BeforeValidator(no_password_itself)] | None = Field(
        default=None, description="where the password of the database is: {env: NAME} or {file: PATH}"
    )
    format: Annotated[str, name_in(READERS)] = Field(default="auto", description="what reads it; auto: as its first bytes tell")
    delimiter: Delimiter | None = Field(
        default=None, description="between the cells of a CSV, such as ';' or a tab; None: as its first rows suggest"
    )
    decimal: Literal[".", ","] | None = Field(
        default=None, description="how a CSV writes decimals, '.' or ','; None: as its first rows suggest"
    )

    @field_validator("database")
    @classmethod
    def _refuse_password(cls, value: str) -> str:
        try:
            url = urlsplit(value)
        except ValueError:  # its text shows the URL
            url = urlsplit("")
        if not url.scheme or "://" not in value:
            raise ValueError(
                "data.database is a URL, such as duckdb:///FILE or postgresql+psycopg://USER@HOST/DATABASE"
            ) from None
        if ("@" in url.netloc and ":" in url.netloc.rpartition("@")[0]) or _SECRET.search(unquote(url.query)):
            raise ValueError("no password in a URL: say where it is with database_password: {env: NAME} or {file: PATH}")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.query is None):
            raise ValueError("say where the table is: path, or query")
        if self.query is None and {"database", "database_password"} & self.model_fields_set:
            raise ValueError("database is for a query; a file has path alone")
        if (self.delimiter or self.decimal) and (self.query or self.format not in ("auto", "csv")):
            raise ValueError("delimiter and decimal are for CSV")
        if (self.query and self.format not in ("auto", "sql")) or (self.format == "sql" and self.query is None):
            raise ValueError("format is for path; format: sql is for a query")
        return self

    def relative_to(self, folder: Path) -> Self:
        """The same with paths that are relative to ``folder``."""
        update: dict[str, object] = {}
        if self.path is not None:
            update["path"] = folder / self.path
        if self.database_password and self.database_password.file:
            update["database_password"] = Password(file=folder / self.database_password.file)
        scheme, _, file = self.database.partition(":///")
        if scheme in ("duckdb", "sqlite") and file and not file.startswith(":"):
            update["database"] = f"{scheme}:///{folder / file}"
        return self.model_copy(update=update)

    @property
    def place(self) -> str:
        """Where the table is, in a word for its owner."""
        return "data.query" if self.path is None else str(self.path)
