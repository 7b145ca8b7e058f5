"""A job hands the halves of all parties to one of them, which treats what arrives as a stranger's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.declared import leaving_out, undeclared
from tests.export.needs import needs_onnx
from tests.export.test_taken_away import tables
from tests.export.worlds import a_job, mixed_table, regression_half, split_half
from vfl_node import Result, load, run
from vfl_node.errors import PolicyError, ProtocolError, StateError, UsageError
from vfl_node.execution.allowed import check_allowed
from vfl_node.execution.outcome import JobOutcome
from vfl_node.export import card, checks, joint
from vfl_node.export.exporting import list_files, to_onnx
from vfl_node.export.folders import job_in
from vfl_node.export.joining import score_jointly
from vfl_node.export.loaded import LoadedHalf
from vfl_node.export.received import check_card, check_model, check_sql
from vfl_node.export.sql import select_of
from vfl_node.halves.half import About, OwnHalf
from vfl_node.job import Job
from vfl_node.process import failpoints
from vfl_node.settings.node import Settings
from vfl_node.trust import manifest

SPLIT = {"bottom": [8, 4], "active_bottom": [4], "top": [4], "epochs": 1}
LOGISTIC = {"algorithm": "logistic", "iterations": 2, "key_bits": 2048}
HIDDEN = {"algorithm": "hidden", "reveal": "owners", "epsilon": None, "epochs": 1}

WAYS = {
    "split": ({"protocol": "psi"}, SPLIT, "active"),
    "split, to the passive party": ({"protocol": "psi"}, SPLIT, "lab"),
    "split over a union": ({"protocol": "psu"}, SPLIT | {"model": "wide_deep"}, "active"),
    "split over an obfuscated set": ({"protocol": "apsi", "obfuscation": {"fraction": 0.9}}, SPLIT, "active"),
    "logistic": ({"protocol": "psi"}, LOGISTIC, "clinic"),
    "hidden": ({"protocol": "psi"}, HIDDEN, "passive"),
}


def train(align: Any, keys: Mapping[str, Any], to: str, folder: Path) -> Result:
    clinic, lab = tables()
    lab = lab[lab["id"] < "ID 0250"]
    parties = {"active": "clinic", "passive": ["lab"]} | ({"coordinator": "notary"} if keys is HIDDEN else {})
    job = {"parties": parties, "align": align, "train": dict(keys), "export": {"joint": to}}
    return run(job, active=clinic, passive=lab, out=folder, progress=False, seed=5)


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, OwnHalf, dict[str, bytes]]]:
    """Of each half that a receiver has looked through and taken: whose it is, its own half, and the files."""
    found: list[tuple[str, OwnHalf, dict[str, bytes]]] = []
    check = joint.check_received

    def checked(session: Any, own: OwnHalf, party: str, files: dict[str, bytes]) -> None:
        check(session, own, party, files)
        found.append((party, own, files))

    monkeypatch.setattr(joint, "check_received", checked)
    return found


@needs_onnx
@pytest.mark.parametrize("way", WAYS)
def test_the_halves_in_one_place_say_what_the_product_says(way: str, arrived: Any, tmp_path: Path) -> None:
    align, keys, to = WAYS[way]
    result = train(align, keys, to, tmp_path)
    clinic, lab = tables()
    ((party, own, files),) = arrived
    receiver = {"active": "clinic", "passive": "lab"}.get(to, to)
    assert (own.about.party, party) == (receiver, "lab" if receiver == "clinic" else "clinic")
    given = {"active": clinic, "passive": lab}
    sent = LoadedHalf(files["onnx"], "what was sent")
    checks.check_runs(sent)
    expected = result.predict(**given).to_pandas()["probability"].to_numpy()
    joined = [LoadedHalf(to_onnx(own), "the own half"), sent]
    found = score_jointly(joined, given).values
    assert np.isfinite(expected).sum() == 300
    assert checks.largest_difference(expected, found) <= checks.BOUND
    assert bool(files["sql"]) == (way == "logistic")
    # Both sides say what was learnt; a job that hands nothing over does not.
    for folder in (tmp_path, tmp_path / "lab"):
        report = json.loads((folder / "report.json").read_text())
        told = {name: [entry["what"] for entry in entries] for name, entries in report["learnt"].items()}
        assert told[receiver][-1] == ("half" if receiver == "clinic" else "label model")
        assert "half" in told[receiver]
        assert "half" not in told[party]
        assert report["phases"]["export"]["bytes_sent" if report["party"] == party else "bytes_received"] > len(files["onnx"])


@needs_onnx
def test_what_is_learnt_was_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(*WAYS["split, to the passive party"], tmp_path)
    report = json.loads((tmp_path / "lab" / "report.json").read_text())
    job = job_in(report)
    learnt = {name: [SimpleNamespace(**entry) for entry in entries] for name, entries in report["learnt"].items()}
    assert undeclared(job, learnt) == set()
    bound = next(each.bound for each in manifest.declare(job, None) if each.what == "half")
    assert "cells of its table" in bound
    assert "lab predicts any record any number of times: no budget of predictions counts it" in bound
    declare = manifest.declare
    for what in ("half", "label model"):  # the control: without one declaration it is seen
        monkeypatch.setattr(manifest, "declare", lambda *jobs, what=what: leaving_out(what, declare(*jobs)))
        assert undeclared(job, learnt) == {("lab", what)}


@needs_onnx
@pytest.mark.parametrize("to", ["lab", "clinic"])
def test_no_half_leaves_whose_labels_noise_on_gradients_does_not_cover(to: str, tmp_path: Path) -> None:
    """The half that predicts learns from labels without noise, so ε of gradients would say too little."""
    clinic, lab = tables()
    settings = {"active": {"defences": [{"name": "dp", "max_grad_norm": 1.0, "noise_multiplier": 6.0}]}}
    job = {"parties": {"active": "clinic", "passive": ["lab"]}, "align": {"protocol": "psi"}, "train": SPLIT}
    job |= {"export": {"joint": to}}
    given: dict[str, Any] = {"active": clinic, "passive": lab, "out": tmp_path, "progress": False, "settings": settings}
    if to == "clinic":
        run(job, **given)
        assert json.loads((tmp_path / "report.json").read_text())["training"]["split"]["label_privacy"]["epsilon"]
        return
    with pytest.raises(UsageError, match="learns from labels without noise") as caught:
        run(job, **given)
    assert (caught.value.code, caught.value.for_peer) == ("E_CONFIG", "its settings do not allow export")


@needs_onnx
def test_what_has_arrived_is_written_as_an_export_would(arrived: Any, tmp_path: Path) -> None:
    train(*WAYS["logistic"], tmp_path / "out")
    outcome = JobOutcome(tmp_path / "job")
    outcome.artefacts.mkdir(parents=True)
    for ending, content in arrived[0][2].items():
        (outcome.artefacts / joint.name_file("lab", ending)).write_bytes(content)
    outcome.seal()
    written = joint.write_received(outcome, "lab", tmp_path / "lab")
    assert [path.name for path in written] == ["lab.onnx", "card.json", "lab.sql"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written)
    assert load(tmp_path / "lab" / "lab.onnx").embed(tables()[1]).shape == (300, 1)
    stored = outcome.artefacts / "half-lab.onnx"
    stored.write_bytes(stored.read_bytes()[:-1])
    with pytest.raises(StateError, match=r"half-lab\.onnx"):
        joint.write_received(outcome, "lab", tmp_path / "lab")


@needs_onnx
def test_the_card_that_is_sent_has_no_figure_and_no_count_of_records(arrived: Any, tmp_path: Path) -> None:
    train(*WAYS["split, to the passive party"], tmp_path)
    said = json.loads(arrived[0][2]["json"])
    assert set(said) == {
        *("format", "party", "role", "job", "exported_by", "reads", "counts", "gives", "needs", "holds", "limits", "files")
    }
    assert "levels of its categories" not in str(said["holds"])  # the clinic has none: numbers and a date
    assert "quantiles" in str(said["holds"]) or "means" in str(said["holds"])


@needs_onnx
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda files: files | {"onnx": files["onnx"] + b"\0"}, "E_EXPORT"),
        (lambda files: files | {"json": files["json"].replace(b'"sha256": "', b'"sha256": "0')}, "E_EXPORT"),
        (lambda files: files | {"sql": b"SELECT 1"}, "E_EXPORT"),
        (lambda files: files | {"onnx": bytes(2_000_000)}, "E_COUNT"),
    ],
)
def test_a_bad_half_ends_the_job_and_nothing_of_it_is_kept(
    spoil: Callable[[dict[str, bytes]], dict[str, bytes]], code: str, arrived: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    make = joint.make_sent
    monkeypatch.setattr(joint, "BOUNDS", joint.BOUNDS | {"onnx": 1_000_000})
    monkeypatch.setattr(joint, "make_sent", lambda half, table: spoil(make(half, table)))
    with pytest.raises(ProtocolError) as caught:
        train(*WAYS["split"], tmp_path)
    assert caught.value.code == code
    assert arrived == []
    assert list(tmp_path.rglob("report.json")) == []


@needs_onnx
def test_a_half_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(joint, "BOUNDS", joint.BOUNDS | {"onnx": 1_000})
    with pytest.raises(UsageError, match=r"lab\.onnx has .* bytes, and 1,000 may be sent"):
        train(*WAYS["split"], tmp_path)


@needs_onnx
@pytest.mark.parametrize("what", ["", "image", "offset", "size"])
def test_a_table_whose_half_no_file_holds_is_refused_before_alignment(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clinic, lab = tables()
    clinic, lab = clinic.fillna(50.0), lab.assign(p0=1.0, p1=lab["score"])
    settings = {
        "active": {"data": {"offset": "age"}} if what == "offset" else {},
        "passive": {"data": {"image": {"columns": "p*", "shape": [1, 2]}}} if what == "image" else {},
    }
    if what == "size":
        monkeypatch.setattr("vfl_node.execution.halves.MOST_HALF_BYTES", 100)
    passed: list[str] = []
    monkeypatch.setattr(failpoints, "reach", passed.append)
    job = {"align": {"protocol": "psi"}, "train": {**SPLIT, "task": "regression"}, "export": {"joint": "active"}}
    given: dict[str, Any] = {"active": clinic, "passive": lab, "out": tmp_path, "progress": False, "settings": settings}
    if not what:
        run(job, **given)
        assert {"align-keep", "half", "halves"} <= set(passed)
        return
    with pytest.raises(UsageError, match="cannot be exported") as caught:
        run(job, **given)
    assert caught.value.code == "E_EXPORT"
    assert "align-keep" not in passed


# What a stranger may send.


@pytest.fixture(scope="module")
def honest() -> tuple[bytes, About, OwnHalf]:
    half = split_half(mixed_table(), "passive", {})
    model = to_onnx(half)
    return model, replace(half.about, reads={}, rows={}, classes=()), half


def spoilt(model: bytes, change: Callable[[Any], None]) -> bytes:
    import onnx

    document = onnx.load_model_from_string(model)
    change(document)
    return bytes(document.SerializeToString())


def other_operator(document: Any) -> None:
    document.graph.node[0].op_type = "Expand"


def other_domain(document: Any) -> None:
    document.graph.node[0].domain = "com.microsoft"


def data_outside(document: Any) -> None:
    from onnx import TensorProto

    constant = document.graph.initializer[0]
    constant.ClearField("raw_data")
    constant.data_location = TensorProto.EXTERNAL
    constant.external_data.add(key="location", value="/etc/passwd")


def data_outside_beside(document: Any) -> None:
    document.graph.initializer[0].external_data.add(key="location", value="../secret")


def shape_bomb(document: Any) -> None:
    document.graph.initializer[0].dims[:] = [1 << 40]


def strings_as_constant(document: Any) -> None:
    constant = document.graph.initializer[0]
    constant.data_type = 8


def graph_inside(document: Any) -> None:
    document.graph.node[0].attribute.add(name="body", type=5).g.name = "inner"


def own_function(document: Any) -> None:
    document.functions.add(name="Clip", domain="")


def sparse_constant(document: Any) -> None:
    document.graph.sparse_initializer.add()


def later_operators(document: Any) -> None:
    document.opset_import[0].version = 21


def one_more_set(document: Any) -> None:
    document.opset_import.add(domain="com.microsoft", version=1)


def input_it_does_not_name(document: Any) -> None:
    document.graph.input[0].name = "another"


def no_metadata(document: Any) -> None:
    document.ClearField("metadata_props")


def no_name_of_an_input(document: Any) -> None:
    document.graph.input[0].ClearField("name")


def no_version_of_operators(document: Any) -> None:
    document.opset_import[0].ClearField("version")


def no_key(document: Any) -> None:
    document.metadata_props[0].ClearField("key")


def no_value(document: Any) -> None:
    document.metadata_props[0].ClearField("value")


def many_axes(document: Any) -> None:
    document.graph.initializer[0].dims.extend([1] * 4)  # as many elements as before: only the axes are too many


def of_another_job(document: Any) -> None:
    document.metadata_props[0].value = document.metadata_props[0].value.replace("trial-1", "trial-2")


def of_another_party(document: Any) -> None:
    document.metadata_props[0].value = document.metadata_props[0].value.replace('"lab"', '"bank"')


def of_another_width(document: Any) -> None:
    document.metadata_props[0].value = document.metadata_props[0].value.replace('"width":8', '"width":9')


BAD = [value for value in list(globals().values()) if callable(value) and getattr(value, "__code__", None)]
BAD = [value for value in BAD if value.__code__.co_varnames[:1] == ("document",)]


@needs_onnx
def test_an_honest_half_passes(honest: Any) -> None:
    model, due, half = honest
    form = check_model(model, due)
    assert dict(form.about.reads) == dict(half.about.reads)
    assert len(BAD) == 21


@needs_onnx
@pytest.mark.parametrize("change", BAD)
def test_what_no_export_writes_is_refused(change: Callable[[Any], None], honest: Any) -> None:
    model, due, _ = honest
    with pytest.raises(ProtocolError) as caught:
        check_model(spoilt(model, change), due)
    assert caught.value.code == "E_EXPORT"


@needs_onnx
def test_many_fields_are_refused_before_they_take_memory(honest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, due, _ = honest
    monkeypatch.setattr("vfl_node.export.received.MOST_FIELDS", 1_000)
    with pytest.raises(ProtocolError, match="more than 1,000 fields"):
        check_model(model, due)
    # an empty node of two bytes would take some tens of them
    with pytest.raises(ProtocolError):
        check_model(b"\x3a\x80\x80\x04" + b"\x0a\x00" * 32_768, due)


@needs_onnx
def test_a_long_text_of_what_a_half_says_is_not_parsed(honest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, due, _ = honest
    monkeypatch.setattr("vfl_node.export.received.MOST_HALF_CARD_BYTES", 100)
    monkeypatch.setattr("vfl_node.export.received.FORM", None)
    with pytest.raises(ProtocolError, match="more of itself than a card"):
        check_model(model, due)


@needs_onnx
@given(st.data())
def test_spoilt_bytes_pass_or_are_refused_and_nothing_else(honest: Any, data: Any) -> None:
    model, due, _ = honest
    spoiling = bytearray(model)
    for _ in range(data.draw(st.integers(1, 4))):
        spoiling[data.draw(st.integers(0, len(model) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(model), data.draw(st.integers(0, len(model)))]))
    try:
        check_model(bytes(spoiling[:end]), due)
    except ProtocolError as error:
        assert error.code == "E_EXPORT"  # noqa: PT017 - most of them pass: they are weights


@needs_onnx
def test_a_card_is_of_its_files(honest: Any) -> None:
    model, _, half = honest
    files = {"lab.onnx": model}
    said = card.to_json(card.describe_to(half, list_files(files)))
    check_card(said, "lab", files)
    for bad in (b"", b"[" * 100_000, b"[]", b'{"files": 3}', said.replace(b'"lab"', b'"bank"')):
        with pytest.raises(ProtocolError):
            check_card(bad, "lab", files)
    with pytest.raises(ProtocolError, match="of other files"):
        check_card(said, "lab", {"lab.onnx": model + b"\0"})


@needs_onnx
def test_sql_is_one_select_from_the_records() -> None:
    half = regression_half(mixed_table(dates=False, transforms=False), "passive", {})
    form = check_model(to_onnx(half), replace(half.about, reads={}, rows={}, classes=()))
    text = select_of(half, ("id",)).text
    check_sql(text.encode(), form)
    for bad in (
        "DROP TABLE records",
        "SELECT id FROM records; DROP TABLE records",
        "ATTACH '/etc/passwd' AS other",
        "PRAGMA journal_mode",
        "SELECT name FROM sqlite_master",
        "SELECT id FROM people",
        "SELECT load_extension('evil')",
        "SELECT readfile('/etc/passwd')",
        "SELECT hex(id) FROM records",
        "SELECT id /*! INTO OUTFILE 'x' */ FROM records",
        "INSERT INTO records (id) VALUES (1)",
        "SELECT a.id FROM records a, records b",
        "SELECT id FROM records JOIN records AS step1",
        "SELECT id FROM records UNION ALL SELECT id FROM step1",
        "WITH step1 AS (SELECT id FROM records), step2 AS (SELECT a.id FROM step1 a, step1 b) SELECT id FROM step2",
        "WITH step1 AS (SELECT id FROM records UNION ALL SELECT id FROM records) SELECT id FROM step1",
        "SELECT id FROM records ORDER BY id",
        "QUERY PLAN SELECT id FROM records",
        "SELECT 1",
        "VALUES (1)",
        "",
    ):
        with pytest.raises(ProtocolError):
            check_sql(bad.encode(), form)


@needs_onnx
def test_a_half_that_gives_no_numbers_is_not_written(honest: Any) -> None:
    model, _, _ = honest

    def no_number(document: Any) -> None:
        for constant in document.graph.initializer:
            if constant.data_type == 1:
                constant.raw_data = b"\xff" * len(constant.raw_data)  # NaN

    checks.check_runs(LoadedHalf(model, "honest"))
    with pytest.raises(UsageError, match="gives no numbers"):
        checks.check_runs(LoadedHalf(spoilt(model, no_number), "spoilt"))


# Who must allow it, and which jobs can.


def test_each_owner_must_allow_it() -> None:
    job = a_job({"algorithm": "logistic"}, export={"joint": "active"})
    for allowed, name, role in ((False, "clinic", "active"), (False, "lab", "passive"), (True, "lab", "passive")):
        other = "lab" if name == "clinic" else "clinic"
        settings = Settings(
            name=name,
            role=role,  # type: ignore[arg-type]
            insecure_loopback=True,
            peers={other: {"address": "127.0.0.1:9"}},
            data={"path": "table.csv"},
            policy={"everyone": {"allow_joint_export": allowed}},
        )
        if allowed:
            check_allowed(settings, job, loading=False)
            continue
        check_allowed(settings, a_job({"algorithm": "logistic"}), loading=False)
        with pytest.raises(PolicyError, match=f"to clinic, which the policy of {name} does not allow") as caught:
            check_allowed(settings, job, loading=False)
        assert caught.value.code == "E_POLICY"
        assert "allow_joint_export" in caught.value.hint
        assert caught.value.for_peer == "its policy does not allow the job (kind)"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "export hands over halves of a model, and the job trains none: say train"),
        ({"train": {"algorithm": "hidden"}}, "say train.reveal: owners"),
        ({"train": {"model": "cnn"}}, "say mlp or wide_deep"),
        ({"train": {"missing": {"calibration": "test", "labels": "neighbors"}}}, "another strategy for labels"),
        ({"train": {}, "export": {"joint": "bank"}}, "bank is none of active, passive"),
        ({"train": {}, "export": {"joint": "both"}}, "several passive parties"),
        ({"train": {}, "passive": ("lab", "bank"), "export": {"joint": "lab"}}, "say export: {joint: active}"),
    ],
)
def test_a_job_that_cannot_is_refused_with_what_to_change(keys: dict[str, Any], said: str) -> None:
    passive = keys.pop("passive", ("lab",))
    parties = {"active": "clinic", "passive": list(passive)}
    if keys.get("train", {}).get("algorithm") == "hidden":
        parties["coordinator"] = "notary"
    document = {"name": "trial", "parties": parties, "align": {"protocol": "psu"}, "export": {"joint": "active"}, **keys}
    with pytest.raises(ValueError, match=said):
        Job.model_validate(document)
    if keys.get("train") == {} and len(passive) == 2:  # the control
        Job.model_validate(document | {"export": {"joint": "active"}})


def test_a_job_without_it_is_the_same_as_before_there_was_the_key() -> None:
    assert "export" not in json.loads(a_job({}).canonical())
    assert json.loads(a_job({}, export={"joint": "lab"}).canonical())["export"] == {"joint": "lab"}
