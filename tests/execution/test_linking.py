"""A trial with a linkage: what its owners allow, what its reports and the check of a table say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.node.check import check_table

JOB = """\
name: links
parties: {active: agency, passive: schools, coordinator: linker}
align:
  protocol: linkage
  keys: {u: {kind: number, low: 0, high: 1, reach: 0.2}, title: {kind: text, q: 3}}
  encoding: {epsilon: 0.2, delta: 0.1}
  candidates: 4
  noise: {sigma: 0.4}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, written = tmp_path_factory.mktemp("tables"), {}
    for seed, (name, rows) in enumerate({"agency": 30, "schools": 20}.items()):
        rng = np.random.default_rng(seed)
        written[name] = folder / f"{name}.csv"
        lines = [f"{name}-{i},{rng.random():.4f},title {rng.integers(9)},{rng.normal():.3f}\n" for i in range(rows)]
        written[name].write_text("id,u,called,x\n" + "".join(lines))
    return written


def settings(files: dict[str, Path], **limits: Any) -> Any:
    own = {name: {"data": {"keys": {"title": "called"}}, "policy": {"everyone": limits.get(name, {})}} for name in files}
    given = {name: private_settings(section, source=f"settings of {name}") for name, section in own.items()}
    return trial_settings(parse(JOB, Job, source="job"), files, given=given)


def run(files: dict[str, Path], out: Path, **limits: Any) -> dict[str, Any]:
    folders = simulate(parse(JOB, Job, source="job"), {}, out, settings=settings(files, **limits))
    return {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}


def test_reports(files: dict[str, Path], tmp_path: Path) -> None:
    reports = run(files, tmp_path)
    active, passive = (reports[name]["alignment"] for name in files)
    assert (active["rows"], active["candidates"], active["sigma"], active["reuse"]) == (30, 4, 0.4, None)
    assert (active["tau"], active["expected_disclosed"]) == (passive["tau"], pytest.approx(20 * passive["tau"]))
    assert 4 * 30 / 20 <= passive["reuse"] <= 30
    assert reports["linker"]["alignment"] is None
    assert "decrypt (agency)" not in reports["linker"]["phases"]
    assert set(reports["linker"]["phases"]) == {f"{phase} ({name})" for phase in ("preflight", "align") for name in files}
    for name in reports:
        assert [entry["what"] for entry in reports[name]["learnt"]["linker"]] == ["encodings", "distances"]
        assert "where agency's records are" in reports[name]["learnt"]["schools"][1]["text"]
    page = (tmp_path / "report.html").read_text()
    assert "how long filters are, not how safe keys are" in page
    assert "4 candidates for each record" in page


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed here")
def test_no_party_leaves_a_file_open(files: dict[str, Path], tmp_path: Path) -> None:
    """A coordinator would run out of files after some jobs, and the room of deleted filters would stay taken."""
    run(files, tmp_path)
    opened = [link for link in map(resolved, Path("/proc/self/fd").iterdir()) if link.startswith(str(tmp_path))]
    assert opened == []


def resolved(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # of the listing itself
        return ""


@pytest.mark.parametrize("noise", ["{sigma: 0.4}", "{tau: 0.9}"])
def test_a_passive_party_may_want_more_noise(files: dict[str, Path], tmp_path: Path, noise: str) -> None:
    job = parse(JOB.replace("{sigma: 0.4}", noise), Job, source="job")
    given = {name: private_settings({"data": {"keys": {"title": "called"}}}, source=name) for name in files}
    wanted = {"policy": {"everyone": {"linkage": {"min_sigma": 0.5}}}}
    given["schools"] = private_settings({"data": {"keys": {"title": "called"}}} | wanted, source="schools")
    with pytest.raises(VflError) as refused:
        simulate(job, {}, tmp_path, settings=trial_settings(job, files, given=given))
    assert refused.value.code == "E_POLICY"
    assert "linkage.min_sigma" in refused.value.message


@pytest.mark.parametrize(
    ("owner", "limits", "code", "key"),
    [
        ("agency", {"reveal": []}, "E_POLICY", "reveal: [candidates]"),
        ("schools", {"protocols": ["psu"]}, "E_POLICY", "protocols"),
        ("schools", {"linkage": {"max_reuse": 5}}, "E_REUSE", "linkage.max_reuse"),
    ],
)
def test_what_an_owner_refuses(files: dict[str, Path], tmp_path: Path, owner: str, limits: Any, code: str, key: str) -> None:
    with pytest.raises(VflError) as refused:
        run(files, tmp_path, **{owner: limits})
    assert refused.value.code == code
    assert key in f"{refused.value.message} {refused.value.hint}"


def test_a_text_that_is_too_short(files: dict[str, Path], tmp_path: Path) -> None:
    short = tmp_path / "agency.csv"
    short.write_text(files["agency"].read_text().replace(",title 1,", ",ab,"))
    with pytest.raises(VflError) as refused:
        run({**files, "agency": short}, tmp_path / "out")
    assert refused.value.code == "E_KEY_SHORT"
    assert "ab" not in refused.value.message.split("'")


def test_check_says_which_columns_are_keys(files: dict[str, Path]) -> None:
    checked = check_table(settings(files)["schools"], job=parse(JOB, Job, source="job"))
    assert checked.errors == ()
    assert checked.job is not None
    assert checked.job.keys == ("u (number from 0.0 to 1.0, reach 0.2): u", "title (text, groups of 3 letters): called")
    assert checked.profile is not None
    uses = {column.name: column.use for column in checked.profile.columns}
    assert uses == {"id": "id", "u": "key", "called": "key", "x": "numeric"}
