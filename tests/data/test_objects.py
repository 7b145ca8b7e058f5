"""Tables in an object store: the same as in files, parts included; what a store refuses is said without what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml

from tests.data.object_server import BUCKET, KEY, ObjectServer, serving_objects
from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, UsageError
from vfl_node.settings.node import Data
from vfl_node.settings.reading import load_settings

ROWS = 20_000
DRAW = np.random.default_rng(5)
TABLE = pa.table(
    {
        "id": [f"p{row:06}" for row in range(ROWS)],
        **{f"x{column}": DRAW.normal(size=ROWS) for column in range(12)},
        "kind": DRAW.choice(np.array(["a", "b", "c"]), ROWS),
        "label": DRAW.integers(0, 2, ROWS),
    }
)
SECRET = "canary-secret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    pa_csv.write_csv(TABLE, folder / "t.csv")
    with pa.CompressedOutputStream(str(folder / "t.csv.gz"), "gzip") as packed:
        pa_csv.write_csv(TABLE, packed)
    pq.write_table(TABLE, folder / "t.parquet", row_group_size=4000)
    feather.write_feather(TABLE, folder / "t.feather")
    return folder


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with serving_objects() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer) -> ObjectServer:
    running.objects.clear()
    running.asked.clear()
    return running


def stored(server: ObjectServer, key: str, *, as_: str = KEY, bucket: str = BUCKET, **settings: Any) -> Data:
    store = {"endpoint": server.endpoint, "region": "eu-central-1", "access_key": as_, "secret_key": {"env": "STORE_SECRET"}}
    return Data.model_validate({"url": f"s3://{bucket}/{key}", "store": store, **settings})


def read(data: Data) -> Table:
    return read_table(data, id_form="text", needs_label=True, party="lab")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", SECRET)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather"])
def test_an_object_is_the_same_table_as_the_file(server: ObjectServer, folder: Path, name: str) -> None:
    server.put(f"cohort/{name}", (folder / name).read_bytes())
    assert read(stored(server, f"cohort/{name}")).digest() == read(Data(path=folder / "t.csv")).digest()


def test_objects_below_a_prefix_are_the_parts_of_a_table(server: ObjectServer) -> None:
    for part in range(3):
        content = pa.BufferOutputStream()
        pq.write_table(TABLE.slice(part * 7000, 7000), content)
        server.put(f"cohort/part-{part}.parquet", content.getvalue().to_pybytes())
    server.put("cohort/_SUCCESS", b"")
    server.put("other/part-9.parquet", b"not read")
    for url in ("cohort", "cohort/"):
        table = read(stored(server, url))
        assert len(table) == ROWS
    with closing(open_input(stored(server, "cohort"), party="lab")) as reader:
        assert reader.format == "parquet in 3 parts"
    server.put("cohort/year=2024/part-0.parquet", b"")
    with pytest.raises(DataError, match=r"s3://clinic-tables/cohort: has a folder in it, year=2024") as caught:
        read(stored(server, "cohort"))
    assert caught.value.code == "E_FORMAT"


def test_a_parquet_object_is_read_by_ranges_and_only_where_columns_are_needed(server: ObjectServer, folder: Path) -> None:
    content = (folder / "t.parquet").read_bytes()
    server.put("t.parquet", content)
    with closing(open_input(stored(server, "t.parquet"), party="lab")) as reader:
        server.asked.clear()
        assert sum(batch.columns.num_rows for batch in reader.batches({"kind"})) == ROWS
    ranges = [range_.removeprefix("bytes=").split("-") for method, _, range_ in server.asked if method == "GET"]
    assert sum(int(end) - int(begin) + 1 for begin, end in ranges) < len(content) / 2


def test_an_object_that_is_written_again_meanwhile_is_refused(server: ObjectServer, folder: Path) -> None:
    content = (folder / "t.csv").read_bytes()
    server.put("t.csv", content)
    with closing(open_input(stored(server, "t.csv"), party="lab")) as reader:
        first = [batch.columns for batch in reader.batches()]
        assert [batch.columns for batch in reader.batches()] == first
    server.put("t.parquet", (folder / "t.parquet").read_bytes())
    with closing(open_input(stored(server, "t.parquet"), party="lab")) as reader:
        server.put("t.parquet", (folder / "t.parquet").read_bytes(), moment=1.8e9)
        with pytest.raises(DataError, match="changed while it was read"):
            next(reader.batches())


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_an_object_that_is_written_again_during_a_reading_is_refused_at_its_end(
    server: ObjectServer, folder: Path, name: str
) -> None:
    content = (folder / name).read_bytes()
    server.put(name, content)
    with closing(open_input(stored(server, name), party="lab")) as reader:
        batches = reader.batches()
        next(batches)
        server.put(name, content, moment=1.8e9)
        with pytest.raises(DataError, match="changed while it was read"):
            list(batches)
        with pytest.raises(DataError, match="changed while it was read"):
            list(reader.batches())


def test_a_part_that_is_written_again_between_two_readings_is_refused(server: ObjectServer, folder: Path) -> None:
    content = (folder / "t.csv").read_bytes()
    server.put("cohort/part-0.csv", content)
    with closing(open_input(stored(server, "cohort"), party="lab")) as reader:
        list(reader.batches())
        server.put("cohort/part-0.csv", content, moment=1.8e9)
        with pytest.raises(DataError, match=r"cohort/part-0.csv: changed while it was read"):
            list(reader.batches())


@pytest.mark.parametrize("name", ["t.parquet", "t.csv.gz", "t.feather"])
def test_a_damaged_object_is_no_fault_of_the_store(server: ObjectServer, folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    server.put(name, bytes(content))
    with pytest.raises(DataError, match="damaged or cut off") as caught:
        read(stored(server, name))
    assert caught.value.code == "E_CSV"


@pytest.mark.parametrize(
    ("change", "code", "hint"),
    [
        ({"key": "cohort/canary"}, "NO_SUCH_KEY", "correct data.url"),
        ({"bucket": "no-such-bucket"}, "NO_SUCH_BUCKET", "correct data.url"),
        ({"as_": "stranger"}, "ACCESS_DENIED", "data.store.access_key"),
    ],
)
def test_what_a_store_refuses_is_said_by_its_code(server: ObjectServer, change: dict[str, str], code: str, hint: str) -> None:
    server.put("t.csv", b"id,label\ncanary-1,0\n")
    with pytest.raises(DataError, match=r"lab: s3://[a-z-]+/") as caught:
        read(stored(server, **{"key": "t.csv", **change}))
    assert caught.value.code == "E_FILE"
    assert f"({code})" in caught.value.message
    assert hint in caught.value.hint
    said = str(caught.value) + caught.value.for_peer
    assert "canary-message" not in said
    assert SECRET not in said
    assert caught.value.__suppress_context__


def test_a_store_that_cannot_be_reached(server: ObjectServer) -> None:
    data = Data.model_validate({"url": "s3://clinic-tables/t.csv", "store": {"endpoint": "http://127.0.0.1:9", "region": "x"}})
    data = data.model_copy(
        update={"store": stored(server, "t.csv").store.model_copy(update={"endpoint": "http://127.0.0.1:9"})}
    )  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"cannot be read \(NETWORK_CONNECTION\)") as caught:
        read(data)
    assert "data.store.endpoint" in caught.value.hint


def test_the_secret_is_where_the_settings_say(server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORE_SECRET")
    with pytest.raises(UsageError, match="has no variable STORE_SECRET") as caught:
        read(stored(server, "t.csv"))
    assert "data.store.secret_key" in caught.value.hint
    (tmp_path / "node.yaml").write_text(
        "name: lab\nrole: passive\nlisten: 127.0.0.1:0\ninsecure_loopback: true\ndata:\n  url: s3://clinic-tables/t.csv\n"
        "  store: {endpoint: 'https://store', ca: own-ca.pem, access_key: a, secret_key: {file: secret}}\n"
    )
    data = load_settings(tmp_path / "node.yaml").data
    assert isinstance(data, Data)
    assert data.store is not None
    assert data.store.ca == tmp_path / "own-ca.pem"
    assert data.store.secret_key is not None
    assert data.store.secret_key.file == tmp_path / "secret"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"url": "s3://bucket"}, "s3://BUCKET/KEY"),
        ({"url": "s3://bucket//key"}, "s3://BUCKET/KEY"),
        ({"url": "s3://bucket/a//b"}, "s3://BUCKET/KEY"),
        ({"url": "https://bucket/key"}, "s3://BUCKET/KEY"),
        ({"url": "s3://AKIA:canary-1@bucket/key"}, "s3://BUCKET/KEY"),
        ({"url": "s3://bucket/key?token=canary-1"}, "s3://BUCKET/KEY"),
        ({"url": "s3://bucket/key", "path": "t.csv"}, "path, url, or query"),
        ({"path": "t.csv", "store": {}}, "store is for a url"),
        ({"url": "s3://bucket/key", "store": {"access_key": "a"}}, "belong together"),
        ({"url": "s3://bucket/key", "store": {"access_key": "a", "secret_key": "canary-1"}}, "not the password"),
        ({"url": "s3://bucket/key", "store": {"endpoint": "http://store", "ca": "ca.pem"}}, "ca is for"),
        ({"url": "s3://bucket/key", "store": {"endpoint": "http://user:canary-1@store"}}, "a server"),
        ({"url": "s3://bucket/key", "format": "sql"}, "format: sql is for a query"),
    ],
)
def test_settings_that_name_no_object(data: dict[str, Any], text: str, tmp_path: Path) -> None:
    settings = {"name": "lab", "role": "passive", "listen": "127.0.0.1:0", "insecure_loopback": True, "data": data}
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(UsageError, match=text) as caught:
        load_settings(tmp_path / "node.yaml")
    assert "canary" not in str(caught.value)
