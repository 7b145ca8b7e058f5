"""Several tables at one node: a job names one, its owner says where it lies, and a peer cannot tell which there are."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from nodes import Federation
from structlog.testing import capture_logs

from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.named import data_of
from vfl_node.errors import DataError, PolicyError, UsageError
from vfl_node.execution.inputs import count_input, read_input, select_records
from vfl_node.job import Align, Job
from vfl_node.node.start_check import StartCheck
from vfl_node.session.memory import MemoryOfOneRun, join_memories
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings

JOB = "name: trial\nparties: {active: clinic, passive: lab}\n"
TRAIN = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"


def job(tables: str = "", text: str = "") -> Job:
    return parse(JOB + (f"tables: {tables}\n" if tables else "") + text, Job, source="job.yaml")


def lab(folder: Path, data: str, policy: str = "{everyone: {tables: any}}") -> Settings:
    path = folder / "node.yaml"
    path.write_text(f"name: lab\nrole: passive\nlisten: 127.0.0.1:0\npeers: {{clinic: {{}}, shop: {{}}}}\n{data}\n")
    path.write_text(path.read_text() + f"policy: {policy}\ninsecure_loopback: true\nhttp: null\n")
    return load_settings(path)


def write(path: Path, rows: range, column: str = "x") -> None:
    path.write_text(f"id,{column}\n" + "".join(f"r{row},{row % 7}\n" for row in rows))


@pytest.fixture
def two(tmp_path: Path) -> Settings:
    write(tmp_path / "a.csv", range(100))
    write(tmp_path / "b.csv", range(50, 150), "y")
    policy = "{everyone: {tables: [panel]}, partners: {shop: {tables: [scores]}}}"
    return lab(tmp_path, "data: {panel: {path: a.csv}, scores: {path: b.csv}}", policy)


def test_one_table_needs_no_name(tmp_path: Path) -> None:
    for data in ("data: {path: a.csv}", "data: {panel: {path: a.csv}}"):
        assert data_of(lab(tmp_path, data, "{}"), job()).path == tmp_path / "a.csv"
    assert data_of(lab(tmp_path, "data: {path: a.csv}", "{}"), job("{clinic: panel}")).path == tmp_path / "a.csv"


def test_a_job_names_one_of_several(tmp_path: Path) -> None:
    settings = lab(tmp_path, "data: {panel: {path: a.csv}, scores: {path: b.csv, id: number}}")
    assert data_of(settings, job("{lab: panel}")).path == tmp_path / "a.csv"
    assert data_of(settings, job("{lab: scores, clinic: visits}")).id == "number"


def test_jobs_that_name_none_go_on_when_a_second_table_comes(tmp_path: Path) -> None:
    settings = lab(tmp_path, "data: {default: {path: a.csv}, scores: {path: b.csv}}")
    assert data_of(settings, job()).path == tmp_path / "a.csv"
    assert data_of(settings, job("{lab: default}")).path == tmp_path / "a.csv"
    assert data_of(settings, job("{lab: scores}")).path == tmp_path / "b.csv"


def test_what_the_owner_reads_and_what_a_peer_gets(two: Settings, tmp_path: Path) -> None:
    """The peer's answer is that for a table that cannot be read."""
    refused = {}
    for names in ("", "{lab: pannel}", "{lab: scores}"):
        with pytest.raises(DataError) as caught:
            data_of(two, job(names))
        refused[names] = caught.value
    assert refused[""].message == "lab: no table for this job: it has several, and the job names none"
    assert refused["{lab: pannel}"].message == "lab: no table for this job: 'pannel' is not among its data"
    for names in ("", "{lab: pannel}"):
        assert refused[names].hint == "name one in the job, tables: {lab: NAME}; names in this node's data: panel, scores"
    assert refused["{lab: scores}"].message == "lab: no table for this job: 'scores' is not for jobs with clinic"
    (tmp_path / "a.csv").unlink()
    with pytest.raises(DataError) as unreadable:
        read_input(two, job("{lab: panel}"))
    answers = {(error.for_peer, error.peer_code) for error in [*refused.values(), unreadable.value]}
    assert len(answers) == 1
    assert {error.code for error in refused.values()} == {"E_TABLE"}


def test_a_table_is_for_the_peers_that_its_owner_names(two: Settings, tmp_path: Path) -> None:
    with_shop = parse("name: trial\nparties: {active: shop, passive: lab}\ntables: {lab: scores}\n", Job, source="job.yaml")
    assert data_of(two, with_shop).path == tmp_path / "b.csv"
    three = "name: trial\nparties: {active: shop, passive: [lab, clinic]}\ntables: {lab: scores}\nalign: {protocol: psi}\n"
    with pytest.raises(DataError, match="not for jobs with clinic"):
        data_of(two, parse(three, Job, source="job.yaml"))
    with pytest.raises(UsageError, match=r"policy\.partners names 'bank', which is not among peers"):
        lab(tmp_path, "data: {panel: {path: a.csv}}", "{partners: {bank: {tables: [panel]}}}")


def test_a_job_names_tables_of_its_data_parties_only() -> None:
    with pytest.raises(UsageError, match=r"tables names 'bank', which is no party with data \(clinic, lab\)"):
        job("{bank: a}")
    with pytest.raises(UsageError, match=r"job\.yaml:3:\d+: 'tables\.lab': '\.\./a' is not a name"):
        job("{lab: ../a}")


def test_a_difference_in_tables_is_named_before_anything_is_aligned() -> None:
    ours, theirs = job("{lab: panel}").field_digests(), job("{lab: scores}").field_digests()
    assert {name for name in ours if ours[name] != theirs[name]} == {"tables"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("data: {panel: {pth: a.csv}}", "node.yaml:5:16: unknown key 'data.panel.pth'"),
        ("data: {panel: {path: a.csv}, scores: b.csv}", "5:38: 'data.scores': 'b.csv' is not keys and values"),
        ("data: {panel: {path: a.csv, columns: {a: numerc}}}", "5:42: 'data.panel.columns.a' cannot be 'numerc'"),
        ("data: {My Panel: {path: a.csv}}", "'data.My Panel': 'My Panel' is not a name"),
        ("data: {pth: a.csv}", "unknown key 'data.pth'"),
        ("data: {columns: {a: numeric}}", "node.yaml:5:7: 'data': say where the table is: path, url, or query"),
    ],
)
def test_mistakes_in_several_tables_have_a_place(tmp_path: Path, data: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        lab(tmp_path, data)
    assert said in caught.value.message
    if "pth" in data:
        assert "did you mean 'path'?" in caught.value.hint


def test_the_records_of_another_table_are_another_set(tmp_path: Path) -> None:
    """What a partner was promised holds for records, by whatever name the job knows them."""
    write(tmp_path / "a.csv", range(100))
    write(tmp_path / "b.csv", range(50, 150), "y")
    write(tmp_path / "c.csv", range(100), "z")  # the records of a.csv
    settings = lab(tmp_path, "data: {a: {path: a.csv}, b: {path: b.csv}, c: {path: c.csv}}")
    tables = {name: read_input(settings, job(f"{{lab: {name}}}")) for name in "abc"}
    assert tables["a"].identity == tables["c"].identity != tables["b"].identity
    memory = MemoryOfOneRun(Randomness(b"m" * 32))
    for name, most in (("a", 80), ("b", 70), ("c", 80)):
        assert len(select_records(tables[name], Align(at_most=most), memory, settings.limits_for(None), "lab")) == most
    with pytest.raises(PolicyError, match="80 records of this table took part in an earlier job"):
        select_records(tables["c"], Align(at_most=70), memory, settings.limits_for(None), "lab")


def test_a_partner_sees_one_part_of_a_table_whoever_else_takes_part(tmp_path: Path) -> None:
    """Else each other set of parties would show it other records, and a pair's list would not be the one of its mark."""
    write(tmp_path / "a.csv", range(100))
    write(tmp_path / "later.csv", range(101))
    settings = lab(tmp_path, "data: {a: {path: a.csv}, later: {path: later.csv}}")
    memories = {name: MemoryOfOneRun(Randomness(name.encode().ljust(32))) for name in ("clinic", "insurer", "shop", "bank")}

    def part(*partners: str, table: str = "a") -> set[bytes]:
        memory = join_memories([memories[name] for name in partners])
        read = read_input(settings, job(f"{{lab: {table}}}"))
        return set(select_records(read, Align(at_most=60), memory, settings.limits_for(None), "lab").ids)

    first = part("clinic")
    for partners in (("clinic", "insurer"), ("shop", "clinic"), ("insurer",), ("insurer", "shop"), ("shop",)):
        assert part(*partners) == first
    assert part("bank") != first
    with pytest.raises(PolicyError, match="the partners of this job had different parts") as caught:
        part("clinic", "bank")
    assert caught.value.code == "E_PROMISE"
    assert len(part("clinic", "bank", table="later") - first) <= 1  # another set: its change counts


def test_an_estimate_counts_the_table_of_the_job(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", range(100))
    write(tmp_path / "b.csv", range(70), "y")
    settings = lab(tmp_path, "data: {a: {path: a.csv}, b: {path: b.csv}}")
    assert [count_input(settings, job(f"{{lab: {name}}}")).rows for name in "ab"] == [100, 70]


def test_a_node_that_starts_looks_at_every_table(two: Settings, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("id,y\n" + "r1,2\n" * 60)
    checking = StartCheck(two)
    with capture_logs() as lines:
        checking.start()
        checking.join(240)
    health = checking.health()
    assert health is not None
    assert (health["status"], list(health["tables"])) == ("unusable", ["panel", "scores"])
    assert (health["tables"]["panel"]["status"], health["tables"]["panel"]["rows"]) == ("usable", 100)
    assert [error["code"] for error in health["tables"]["scores"]["errors"]] == ["E_DUP_IDS"]
    assert [(line["table"], line["code"]) for line in lines] == [("scores", "E_DUP_IDS")]
    quiet = StartCheck(lab(tmp_path, "data: {panel: {path: a.csv, check: false}, scores: {path: a.csv}}"))
    quiet.start()
    quiet.join(240)
    assert list((quiet.health() or {})["tables"]) == ["scores"]


def halves(federation: Federation) -> dict[str, Any]:
    """Two tables of the lab, each with half of the columns."""
    data = {}
    with federation.trial.lab.open(newline="") as file:
        rows = list(csv.reader(file))
    for name, chosen in (("panel", slice(1, 10)), ("scores", slice(10, None))):
        path = federation.folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([row[0], *row[chosen]] for row in rows)
        data[name] = {"path": str(path)}
    return data


def test_a_second_use_case_needs_no_second_node(federation: Federation, trial: Any) -> None:
    data = halves(federation)
    federation.start_both(data=data, everyone={"tables": "any"})
    federation.wait_until(lambda: "checked" in str(federation.client("lab").health()["data"]))
    assert list(federation.client("lab").health()["data"]["tables"]) == ["panel", "scores"]
    serve = "evaluate: {test_fraction: 0.3}\nserve: {to: active}\n"
    for name in data:
        job_id = federation.submit(f"tables: {{lab: {name}}}\n{TRAIN}{serve}")
        assert federation.end("clinic", job_id)["state"] == "done", federation.log("clinic")[-2000:]
        assert federation.end("lab", job_id)["state"] == "done"
        assert federation.report("lab", job_id)["job"]["spec"]["tables"] == {"lab": name}
        asked = f"id\n{trial.ids[50]}\n".encode()
        assert federation.client("clinic").predict(job_id, asked, lambda: None).count(b"\n") == 2  # from its own table
    seen = {}
    for tables in ("", "tables: {lab: pannel}\n"):
        job_id = federation.submit(tables + TRAIN)
        error = federation.end("clinic", job_id)["error"]
        assert error["message"].endswith("its data cannot be used for this job (E_DATA)")
        seen[tables] = (error["code"], error["message"], error["hint"])
        owner = federation.end("lab", job_id)["error"]
        assert owner["code"] == "E_TABLE"
        assert "panel, scores" in owner["hint"]
    assert len(set(seen.values())) == 1
    assert "panel" not in str(seen)
    assert "scores" not in str(seen)
