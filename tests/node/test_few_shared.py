"""Nodes whose ids do not meet: both owners see why their job stopped, and the coordinator does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from nodes import THREE, Federation

from tests.thorough import examples

JOB = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, iterations: 2, key_bits: 2048, flow: coordinator, loss: taylor}
"""


@pytest.mark.parametrize("attempt", range(examples(3, fewer=1)))  # whoever stops first
def test_both_owners_are_told_what_their_own_ids_suggest(trial: Any, tmp_path: Path, attempt: int) -> None:
    lab = tmp_path / "lab.csv"
    header, *rows = trial.lab.read_text().splitlines(keepends=True)
    lab.write_text("".join([header, *(row.upper() for row in rows)]))
    nodes = Federation(tmp_path / "nodes", dataclasses.replace(trial, lab=lab), THREE)
    try:
        nodes.start_three()
        job_id = nodes.client("clinic").submit(JOB)["id"]
        ends = {name: nodes.end(name, job_id) for name in THREE}
        assert {name: end["state"] for name, end in ends.items()} == dict.fromkeys(THREE, "failed")
        for name in ("clinic", "lab"):
            assert ends[name]["error"]["code"] == "E_TOO_FEW_SHARED", nodes.log(name)[-3000:]
            assert "no record is shared" in ends[name]["error"]["message"]
            assert "align.id_form: nocase" in ends[name]["error"]["hint"]
            assert "so few that the ids may not meet" in nodes.log(name)
            assert not (nodes.job_folder(name, job_id) / "artefacts" / "report.json").exists()
        assert "All your 160 ids have capital letters" in ends["lab"]["error"]["hint"]
        assert "All your 160 ids have letters, none of them a capital" in ends["clinic"]["error"]["hint"]
        assert "its owner does not go on" in ends["notary"]["error"]["message"]
        assert "shared" not in nodes.log("notary").casefold()
    finally:
        nodes.end_all()
