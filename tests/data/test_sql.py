"""Rows of a query, by DuckDB and by SQLAlchemy; and that no password or cell is in any text."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.thorough import every
from vfl_node.data.reading import read_table
from vfl_node.data.tables import CategoricalColumn, Table
from vfl_node.errors import DataError, UsageError, VflError
from vfl_node.node.check import check_table
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.reading import load_settings

duckdb = pytest.importorskip("duckdb")
sqlalchemy = pytest.importorskip("sqlalchemy")

from sqlalchemy.dialects import registry  # noqa: E402 - of the extra
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite  # noqa: E402

CSV = "id,age,kind,flag,label\n" + "".join(
    f"r{row},{'' if row % 7 == 0 else row / 4},{('a', 'b')[row % 2]},{('true', 'false')[row % 3 == 0]},{row % 2}\n"
    for row in range(60)
)
SECRET = "canary-Pa55 w/rd@:%"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the same table as CSV, and in databases of SQLite and DuckDB."""
    (tmp_path / "t.csv").write_text(CSV)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.sql(f"create table t as select * from read_csv('{tmp_path / 't.csv'}')")
        rows = database.sql("select * from t").fetchall()
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as database:
        database.execute("create table t (id text, age real, kind text, flag, label int)")
        named = [(*row[:3], "true" if row[3] else "false", row[4]) for row in rows]
        database.executemany("insert into t values (?, ?, ?, ?, ?)", named)
        database.commit()
    return tmp_path


def read(**settings: Any) -> Table:
    return read_table(Data(**settings), id_form="text", needs_label=True, party="lab")


def test_a_query_is_the_same_table_as_the_csv(files: Path) -> None:
    expected = read(path=files / "t.csv").digest()
    query = "select * from t"
    assert read(query=query, database=f"duckdb:///{files}/t.duckdb").digest() == expected
    assert read(query=query, database=f"sqlite:///{files}/t.sqlite").digest() == expected
    assert read(query=f"select * from '{files}/t.csv'").digest() == expected  # DuckDB reads files by itself
    assert read(query=query, database=f"duckdb:///{files}/t.duckdb", format="sql").digest() == expected


def test_a_query_is_taken_as_it_is_written(files: Path) -> None:
    """Percent signs and colons are no parameters."""
    query = "select id, age, label, '5:a%s%(x)s' as mark from t where id like 'r1%'"
    for database in (f"duckdb:///{files}/t.duckdb", f"sqlite:///{files}/t.sqlite"):
        table = read(query=query, database=database)
        assert len(table) == 11
        mark = table.columns["mark"]
        assert isinstance(mark, CategoricalColumn)
        assert mark.levels == ("5:a%s%(x)s",)


def test_cells_of_several_types_in_one_column(files: Path) -> None:
    """SQLite has them: they are read as CSV would have them."""
    query = "select id, label, case when label then age else 'low' end as x, case when label then null else 7 end as y from t"
    table = read(query=query, database=f"sqlite:///{files}/t.sqlite")
    assert isinstance(table.columns["x"], CategoricalColumn)
    assert "low" in table.columns["x"].levels
    assert not isinstance(table.columns["y"], CategoricalColumn)


def test_a_query_changes_nothing(files: Path) -> None:
    for database in (f"duckdb:///{files}/t.duckdb", f"sqlite:///{files}/t.sqlite"):
        with pytest.raises(DataError) as caught:
            read(query="delete from t", database=database)
        assert caught.value.code == "E_SQL"
        assert len(read(query="select * from t", database=database)) == 60


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("selec * from t", "selec"),
        ("select * from nowhere", "nowhere"),
        ("select nothing from t", "nothing"),
    ],
)
def test_a_mistake_in_the_query_is_explained(query: str, text: str, files: Path) -> None:
    for database in ("duckdb", "sqlite"):
        with pytest.raises(DataError) as caught:
            read(query=query, database=f"{database}:///{files}/t.{database}")
        assert caught.value.code == "E_SQL"
        assert caught.value.message.startswith("lab: data.query: the database refuses the query (")
        assert text in caught.value.message
        assert str(files) not in caught.value.for_peer


def test_what_a_database_says_about_rows_is_not_shown(files: Path) -> None:
    spoiled = "select id, label, cast(case when id = 'r9' then 'canary' else '1' end as int) as x from t"
    with pytest.raises(DataError) as caught:
        read(query=spoiled, database=f"duckdb:///{files}/t.duckdb")
    assert "(ConversionException)" in caught.value.message
    _shows_no_canary(caught.value)
    with pytest.raises(DataError) as caught:
        read(query="select id, label, json_extract('canary' || id, '$') from t", database=f"sqlite:///{files}/t.sqlite")
    assert "(OperationalError)" in caught.value.message
    _shows_no_canary(caught.value)


def test_places_in_a_query(files: Path) -> None:
    with pytest.raises(DataError, match=r"lab: data.query:row 3:id: the identifier is empty"):
        read(query="select nullif(id, 'r2') as id, label from t", database=f"duckdb:///{files}/t.duckdb")
    with pytest.raises(DataError, match=r"lab: data.query: columns 1 and 2 have the same name"):
        read(query="select id, id from t", database=f"sqlite:///{files}/t.sqlite")
    with pytest.raises(DataError, match=r"lab: data.query: has no rows"):
        read(query="select * from t where false", database=f"duckdb:///{files}/t.duckdb")


class CanaryDialect(SQLiteDialect_pysqlite):
    """A database whose errors tell everything that it was given."""

    def create_connect_args(self, url: Any) -> Any:
        return [], {"password": url.password, "url": url.render_as_string(hide_password=False)}

    def connect(self, *arguments: Any, **named: Any) -> Any:
        if named["url"].endswith("/let-me-in"):
            return sqlite3.connect(":memory:")
        raise sqlite3.OperationalError(f"cannot log in with {named}")


@pytest.fixture
def canarydb() -> Iterator[None]:
    registry.register("canarydb", __name__, "CanaryDialect")
    registry.impls["canarydb"] = lambda: CanaryDialect
    yield
    registry.impls.pop("canarydb")


@pytest.mark.usefixtures("canarydb")
@pytest.mark.parametrize(
    ("database", "query", "what"),
    [
        ("canarydb://user@host/db", "select 1 as id", "the database cannot be reached, or refuses the user (OperationalError)"),
        ("sqlite://user@host/db", "select 1 as id", "data.database cannot be used (ArgumentError)"),
        ("nonedb://user@host/db", "select 1 as id", "data.database cannot be used (NoSuchModuleError)"),
        ("canarydb://user@host/let-me-in", "select nothing", "the database refuses the query (OperationalError)"),
    ],
)
@pytest.mark.parametrize("kept", ["env", "file"])
def test_a_password_is_in_no_text(
    database: str, query: str, what: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("LAB_PASSWORD", SECRET)
    (tmp_path / "secret").write_text(SECRET + "\n")
    password = {"env": "LAB_PASSWORD"} if kept == "env" else {"file": tmp_path / "secret"}
    data = Data(query=query, database=database, database_password=password)
    with pytest.raises(VflError) as caught:
        read_table(data, id_form="text", needs_label=False, party="lab")
    assert caught.value.message.startswith(f"lab: data.query: {what}")
    _shows_no_canary(caught.value)
    settings = Settings(name="lab", role="passive", data=data, insecure_loopback=True)
    shown = repr(check_table(settings)) + repr(settings) + settings.model_dump_json() + "".join(capfd.readouterr())
    assert "canary-" not in shown


def test_a_password_reaches_the_database(canarydb: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the driver above is given what must not be shown."""
    monkeypatch.setenv("LAB_PASSWORD", SECRET)
    given = []
    monkeypatch.setattr(
        CanaryDialect, "connect", lambda self, *args, **named: given.append(named) or sqlite3.connect(":memory:")
    )
    settings: dict[str, Any] = {"database": "canarydb://user@host/db", "database_password": {"env": "LAB_PASSWORD"}}
    with pytest.raises(DataError):
        read(query="select 1 as id", **settings)
    assert given[0]["password"] == SECRET


def test_a_password_that_is_not_there(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"query": "select 1 as id", "database": "sqlite://"}
    with pytest.raises(UsageError, match="the environment has no variable NO_SUCH_NAME"):
        read(database_password={"env": "NO_SUCH_NAME"}, **settings)
    with pytest.raises(UsageError, match="no-such-file cannot be read"):
        read(database_password={"file": tmp_path / "no-such-file"}, **settings)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("{query: select 1, database: 'postgresql://u:canary-1@host/db'}", "no password in a URL"),
        ("{query: select 1, database: 'mysql://host/db?password=canary-1'}", "no password in a URL"),
        (
            "{query: select 1, database: 'sqlite://', database_password: canary-1}",
            "say where the password is, not the password",
        ),
        ("{query: select 1, database_password: [canary-1]}", "say where the password is, not the password"),
        ("{query: select 1, database: canary-1}", "data.database is a URL"),
        ("{query: select 1, database: 'postgresql://u:canary-1@h\u2100st/db'}", "data.database is a URL"),
        ("{query: select 1, database: 'mssql+pyodbc:///?odbc_connect=UID%3Du%3BPWD%3Dcanary-1'}", "no password in a URL"),
        ("{query: select 1, database_password: {env: a, file: b}}", "say where the password is: {env: NAME} or {file: PATH}"),
        ("{path: a.csv, query: select 1}", "say where the table is: path, url, or query"),
        ("{id: a}", "say where the table is: path, url, or query"),
        ("{path: a.csv, database: 'sqlite://'}", "database is for a query"),
        ("{path: a.csv, format: parquet, delimiter: ';'}", "delimiter, decimal and encoding are for CSV"),
        ("{path: a.csv, format: sql}", "format: sql is for a query"),
        ("{query: select 1, format: csv}", "format is for path"),
    ],
)
def test_settings_that_contradict_each_other(data: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(f"name: lab\nrole: passive\ninsecure_loopback: true\ndata: {data}\n")
    with pytest.raises(UsageError) as caught:
        load_settings(path)
    assert why in caught.value.message
    _shows_no_canary(caught.value)


def test_what_pydantic_says_shows_no_password() -> None:
    with pytest.raises(ValidationError) as caught:
        Data(query="select 1", database="postgresql://user:canary-1@host/db")
    assert "canary" not in str(caught.value)


def test_paths_are_relative_to_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    for written, read_as in (
        ("duckdb:///a/b.duckdb", f"duckdb:///{tmp_path}/a/b.duckdb"),
        ("sqlite:///b.sqlite", f"sqlite:///{tmp_path}/b.sqlite"),
        ("sqlite:////b.sqlite", "sqlite:////b.sqlite"),
        ("duckdb://", "duckdb://"),
        ("duckdb:///:memory:", "duckdb:///:memory:"),
        ("postgresql://host/db", "postgresql://host/db"),
    ):
        path.write_text(
            "name: lab\nrole: passive\ninsecure_loopback: true\n"
            f"data: {{query: select 1, database: '{written}', database_password: {{file: secret}}}}\n"
        )
        data = load_settings(path).data
        assert data is not None
        assert data.database == read_as
        assert data.database_password is not None
        assert data.database_password.file == tmp_path / "secret"


@pytest.mark.parametrize(
    ("module", "database"),
    every(2, [("duckdb", "duckdb://"), ("sqlalchemy", "sqlite://"), ("psycopg", "postgresql+psycopg://h/d")]),
)
def test_a_package_that_is_missing_is_named(module: str, database: str) -> None:
    code = f"""
import sys
sys.modules[{module!r}] = None
from vfl_node.data.reading import read_table
from vfl_node.errors import UsageError
from vfl_node.settings.table import Data
try:
    read_table(Data(query="select 1 as id", database={database!r}), id_form="text", needs_label=False, party="lab")
except UsageError as error:
    print(error.code, error.message, error.hint, sep="|")
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    package = "psycopg" if module == "psycopg" else "vfl-node[sql]"
    expected = f"E_EXTENSION|lab: data.query: needs {module}, which is not installed|pip install '{package}'"
    assert shown.stdout.strip() == expected


def _shows_no_canary(error: VflError) -> None:
    shown = repr(error) + str(error) + error.for_peer
    assert "canary" not in shown.replace("canarydb", "")
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None  # so no traceback shows the driver's text
