"""Where a party's table comes from: a file, an object in a store, or the rows of a query in a database."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator
from typing_extensions import Self

from vfl_node.configuration.models import Frozen, name_in, text_like
from vfl_node.configuration.registry import Registry
from vfl_node.settings.declared import Encoding
from vfl_node.settings.password import Password, no_password_itself
from vfl_node.settings.store import ObjectStore, ObjectUrl

_OPENING = "vfl_node.data.readers.opening"

READERS: Registry[Callable[..., Any]] = Registry(
    "vfl_node.readers",
    {
        "auto": f"{_OPENING}:open_auto",
        "csv": f"{_OPENING}:open_csv",
        "parquet": f"{_OPENING}:open_parquet",
        "arrow": f"{_OPENING}:open_arrow",
        "excel": f"{_OPENING}:open_excel",
        "sql": f"{_OPENING}:open_sql",
    },
)
"""``data.format`` → what opens a file of it (:class:`vfl_node.data.readers.contract.OpenReader`).

A package adds one by an entry point of the group ``vfl_node.readers`` that names a callable: called with the input's path and
``party=`` (this party's name, for errors), it returns a :class:`~vfl_node.data.readers.contract.Reader`.
"""

Delimiter = Annotated[str, text_like(r"^[\t!#$%&*,/:;<=>?@^_|~]$", "one character that separates cells, such as ';'")]

_SECRET = re.compile(r"(?i)(password|passwd|pwd|token|secret)[^&=]*=")


NOT_OF_A_FILE = ("query", "database", "database_password", "url", "store")
"""Keys of a source that a file does not have."""


class DataSource(Frozen):
    """Where a party's table comes from."""

    model_config = ConfigDict(hide_input_in_errors=True)

    path: Path | None = Field(
        default=None,
        description="the table: a file of CSV, Parquet, Arrow or Excel, a folder of such parts, or a pattern of names, such as "
        "lab/part-*.parquet; CSV may be compressed by gzip or zstd",
    )
    url: ObjectUrl | None = Field(
        default=None, description="instead of path: such a file, or folder, in an object store, s3://BUCKET/KEY"
    )
    store: ObjectStore | None = Field(default=None, description="the server of the url; None: AWS, by its own settings")
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
    encoding: Encoding = Field(default="utf-8", description="of the text of a CSV; it is never guessed")
    sheet: str | None = Field(default=None, min_length=1, description="of an Excel workbook; None: the first that is shown")

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
        if sum(place is not None for place in (self.path, self.url, self.query)) != 1:
            raise ValueError("say where the table is: path, url, or query")
        if self.query is None and {"database", "database_password"} & self.model_fields_set:
            raise ValueError("database is for a query; a file has path alone")
        if self.url is None and self.store is not None:
            raise ValueError("store is for a url")
        if self.dialect and (self.query or self.format not in ("auto", "csv")):
            raise ValueError("delimiter, decimal and encoding are for CSV")
        if self.sheet and (self.query or self.format not in ("auto", "excel")):
            raise ValueError("sheet is for Excel")
        if (self.query and self.format not in ("auto", "sql")) or (self.format == "sql" and self.query is None):
            raise ValueError("format is for path and url; format: sql is for a query")
        return self

    def relative_to(self, folder: Path) -> Self:
        """The same with paths that are relative to ``folder``."""
        update: dict[str, object] = {}
        if self.path is not None:
            update["path"] = folder / self.path
        if self.store is not None:
            update["store"] = self.store.relative_to(folder)
        if self.database_password:
            update["database_password"] = self.database_password.relative_to(folder)
        scheme, _, file = self.database.partition(":///")
        if scheme in ("duckdb", "sqlite") and file and not file.startswith(":"):
            update["database"] = f"{scheme}:///{folder / file}"
        return self.model_copy(update=update)

    @property
    def dialect(self) -> dict[str, str]:
        """What is said of how a CSV is written."""
        said = {"delimiter": self.delimiter, "decimal": self.decimal, "encoding": self.encoding}
        return {name: value for name, value in said.items() if value and value != "utf-8"}

    @property
    def place(self) -> str:
        """Where the table is, in a word for its owner."""
        return self.url or ("data.query" if self.path is None else str(self.path))
