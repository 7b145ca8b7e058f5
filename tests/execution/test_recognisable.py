"""Before a linkage an owner with a public list is told how many keys the coordinator recognises by it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.linkage_lists import made_up_names
from vfl_node.configuration.models import parse
from vfl_node.errors import DataError
from vfl_node.execution.private import trial_settings
from vfl_node.execution.public_list import read_list
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.node.check import check_table
from vfl_node.settings.protection import AuditSettings, LinkageAuditSettings

PLACE = "home: {kind: place, south: 1.2, north: 1.5, west: 103.6, east: 103.9, reach: 8000}"
DAY = "born: {kind: date, low: 2000-01-01, high: 2000-12-31, reach: 60}"
LINKS = """\
name: linked
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: linkage, keys: {KEYS}, candidates: 3, encoding: {epsilon: 0.2}, noise: {sigma: 0.4}}
"""


def job(*keys: str) -> Job:
    return parse(LINKS.replace("KEYS", ", ".join(keys)), Job, source="job")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two tables of names and places, and ``list``, in which all names and the surroundings of all places stand."""
    folder, names = tmp_path_factory.mktemp("tables"), made_up_names(160)
    rng = np.random.default_rng(0)
    towns = [(1.25, 103.65), (1.3, 103.8), (1.45, 103.72)]

    def lines(who: list[str]) -> str:
        said = "id,name,lat,lon\n"
        for number, name in enumerate(who):
            lat, lon = np.array(towns[rng.choice(3, p=[0.5, 0.3, 0.2])]) + 0.01 * rng.normal(size=2)
            said += f"{number},{name},{lat:.6f},{lon:.6f}\n"
        return said

    tables = {"clinic": names[:120], "lab": names[40:], "list": names}
    for name, who in tables.items():
        (folder / f"{name}.csv").write_text(lines(who))
    return {name: folder / f"{name}.csv" for name in tables}


def settings(of: Job, files: dict[str, Path], audit: LinkageAuditSettings | None) -> dict[str, Any]:
    tables = {name: files[name] for name in ("clinic", "lab")}
    made = trial_settings(of, tables, columns={"keys": {"home": ("lat", "lon")}})
    made["clinic"] = made["clinic"].model_copy(update={"audit": AuditSettings(linkage=audit)})
    return made


def test_the_owner_with_a_list_is_told_and_the_other_one_is_not(files: dict[str, Path], tmp_path: Path) -> None:
    of = job("name: {kind: text}", PLACE)
    audit = LinkageAuditSettings(list=files["list"], keys={"home": ("lat", "lon")})
    every = settings(of, files, audit)
    reports = simulate(of, {name: files[name] for name in ("clinic", "lab")}, tmp_path, settings=every)
    said = {
        name: json.loads((path / "report.json").read_text())["alignment"]["warnings"]
        for name, path in reports.items()
        if name != "notary"
    }
    assert said["lab"] == []
    (text,) = said["clinic"]
    (share,) = re.findall(r"it found (\d+) % of 120 different values of 'name' that were tried \(120 stand in the list\)", text)
    assert int(share) > 90
    (metres,) = re.findall(r"'home' to ([\d,]+) m, in the median", text)
    assert int(metres.replace(",", "")) < 2000
    assert (text, *check_table(every["lab"], job=of).warnings) == check_table(every["clinic"], job=of).warnings


def test_nothing_is_tried_without_need(files: dict[str, Path]) -> None:
    absent = LinkageAuditSettings(list=files["list"].with_name("absent.csv"))
    other = parse("name: other\nparties: {active: clinic, passive: lab}\n", Job, source="job")
    assert check_table(settings(other, files, absent)["clinic"], job=other).errors == ()
    linked = job("name: {kind: text}")
    assert [error.code for error in check_table(settings(linked, files, absent)["clinic"], job=linked).errors] == ["E_FILE"]


@pytest.mark.parametrize(
    ("content", "keys", "message"),
    [
        ("who,u\nanna,1\n", {}, r"clinic: .*public\.csv.*no column for any key: name, born"),
        ("name,day\nanna,2000-02-03\n", {"born": "days"}, r"no column 'days' \(audit\.linkage\.keys\)"),
        ("name,born\nanna,2000-02-03\nbert,yesterday\n", {}, r"public\.csv:3:born: no value that the job's key can have"),
    ],
)
def test_a_list_that_cannot_be_read(content: str, keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "public.csv").write_text(content)
    audit = LinkageAuditSettings(list=tmp_path / "public.csv", keys=keys)
    of = job("name: {kind: text}", DAY)
    with pytest.raises(DataError, match=message) as caught:
        read_list(audit, of.align.keys or {}, "clinic")
    assert "yesterday" not in str(caught.value)


def test_what_the_job_is_not_about_is_left_out_of_the_list(tmp_path: Path) -> None:
    (tmp_path / "public.csv").write_text("name,born,x\nanna,2000-12-31T23:00:00,1\n,2001-01-01,2\ncarl,,3\n")
    of = job("name: {kind: text}", DAY, PLACE)
    read = read_list(LinkageAuditSettings(list=tmp_path / "public.csv"), of.align.keys or {}, "clinic")
    assert list(read) == ["name", "born"]
    assert read["name"] == ("anna", "", "carl")
    assert np.isnan(np.asarray(read["born"], dtype=float)).tolist() == [False, True, True]
