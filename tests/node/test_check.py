"""Whether a node's table can be used: before the first job, for one job, and when the node starts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.node.nodes import at_least
from vfl_node.cli.check import _job_lines
from vfl_node.configuration.models import parse
from vfl_node.errors import DataError, UsageError, VflError
from vfl_node.execution.inputs import read_input
from vfl_node.job import Job
from vfl_node.node import start_check
from vfl_node.node.check import TableCheck, check_table
from vfl_node.node.service import Node
from vfl_node.node.start_check import StartCheck
from vfl_node.settings.node import Data, Peer, Settings

PARTIES = "name: trial\nparties: {active: clinic, passive: lab}\n"
SPLIT = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"
LOGISTIC = "train: {algorithm: logistic, iterations: 2, scaling: none}\n"


def job(text: str = "") -> Job:
    return parse(PARTIES + text, Job, source="job")


def settings_of(folder: Path, content: str = "", role: Any = "active", *, least: int = 3, **changes: Any) -> Settings:
    data = None
    if content:
        (folder / "table.csv").write_text(content)
        data = Data(path=folder / "table.csv", **changes.pop("data", {}))
    own, other = ("clinic", "lab") if role == "active" else ("lab", "clinic")
    policy: Any = {"everyone": changes.pop("everyone", {}) | at_least(least)}
    place: dict[str, Any] = {"listen": "127.0.0.1:0", "http": None, "state_dir": folder / "state", "insecure_loopback": True}
    return Settings(name=own, role=role, data=data, peers={other: Peer()}, policy=policy, device="cpu", **place, **changes)


def rows(count: int = 60, head: str = "id,x,kind,label", label: Any = lambda row: row % 2) -> str:
    return head + "\n" + "".join(f"r{row},{row / 8},k{row % 3},{label(row)}\n" for row in range(count))


def codes(checked: TableCheck) -> list[str]:
    return [error.code for error in checked.errors]


def test_what_a_job_does_with_a_table(tmp_path: Path) -> None:
    text = f"align: {{at_most: 40, id_form: nocase}}\n{SPLIT}"
    checked = check_table(settings_of(tmp_path, rows()), job=job(text))
    use = checked.job
    assert use is not None
    assert (use.job, use.role, use.protocol, use.id_form) == ("trial", "active", "psu", "nocase")
    assert (use.features, use.label, use.classes) == (("x", "kind"), "label", 2)
    assert (use.records, use.min_set_size) == (40, 3)
    assert checked.errors == ()


def test_a_job_that_only_aligns_reads_no_column_and_a_passive_party_no_label(tmp_path: Path) -> None:
    aligns = check_table(settings_of(tmp_path, rows()), job=job()).job
    assert aligns is not None
    assert (aligns.features, aligns.label, aligns.classes) == ((), None, None)
    passive = check_table(settings_of(tmp_path, rows(), "passive"), job=job(SPLIT)).job
    assert passive is not None
    assert (passive.features, passive.label) == (("x", "kind"), None)


def test_a_passive_party_is_warned_where_rows_that_it_makes_up_would_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    content = "id,x,y,z\n" + "".join(f"r{row},{row / 8},{row % 50 + row / 4},{3 - row / 9}\n" for row in range(300))
    own, kept = settings_of(tmp_path, content, "passive"), "No strategy of train.missing prevents that"
    assert any(kept in warning for warning in check_table(own, job=job(SPLIT)).warnings)
    for other in (job("align: {protocol: psi}\n" + SPLIT), job(), None):
        assert not any(kept in warning for warning in check_table(own, job=other).warnings)
    silent = settings_of(tmp_path, content, "passive", audit={"membership": False})
    assert not any(kept in warning for warning in check_table(silent, job=job(SPLIT)).warnings)


def test_a_party_without_labels_is_warned_of_its_columns(tmp_path: Path) -> None:
    content = "id,place,size\n" + "".join(f"r{row},{row % 90:05},{row} {'kg' if row % 2 else 'g'}\n" for row in range(200))
    own = settings_of(tmp_path, content, "passive")
    for checked in (check_table(own), check_table(own, job=job(SPLIT))):
        assert [warning[:13] for warning in checked.warnings] == ["Column 'place", "Column 'size'"]
    assert check_table(own, job=job()).warnings == ()  # it reads no column
    few = settings_of(tmp_path, content.replace(" kg", "").replace(" g", ""), "passive", data={"columns": {"place": "numeric"}})
    assert check_table(few).warnings == ()


@pytest.mark.parametrize(
    ("noise", "role", "expected"),
    [
        ("sigma: 0.4", "active", "sigma 0.4"),
        ("tau: 0.002", "active", "tau 0.002, from which sigma follows"),
        ("sigma: 0.4", "passive", "sigma 0.4; the least that this node allows: 0.2 (linkage.min_sigma)"),
    ],
)
def test_the_noise_of_a_linkage_is_shown(tmp_path: Path, noise: str, role: str, expected: str) -> None:
    align = (
        f"{{protocol: linkage, keys: {{x: {{kind: number, low: 0, high: 9, reach: 1}}}}, candidates: 3, noise: {{{noise}}}}}"
    )
    parties = "name: trial\nparties: {active: clinic, passive: lab, coordinator: notary}\n"
    spec = parse(f"{parties}align: {align}", Job, source="job")
    settings = settings_of(tmp_path, rows(), role, everyone={"linkage": {"min_sigma": 0.2}})
    use = check_table(settings, job=spec).job
    assert use is not None
    assert use.noise == expected
    assert f"  noise on similarities: {expected}" in _job_lines(use)
    assert not any("noise" in line for line in _job_lines(check_table(settings, job=job()).job))


def test_a_regression_reads_numbers(tmp_path: Path) -> None:
    spec = job("train: {task: regression}")
    checked = check_table(settings_of(tmp_path, rows(label=lambda row: row * 12.5)), job=spec)
    assert codes(checked) == []
    assert checked.job is not None
    assert (checked.job.task, checked.job.classes, checked.job.label) == ("regression", None, "label")
    broken = check_table(settings_of(tmp_path, rows(label=lambda row: "dear" if row == 3 else row)), job=spec)
    assert codes(broken) == ["E_LABEL"]
    assert ":5:label: the target is text (1 such cell of" in broken.errors[0].message


@pytest.mark.parametrize(
    ("content", "role", "text", "expected"),
    [
        (rows(2), "active", SPLIT, ["E_TOO_FEW"]),
        (rows(), "active", f"align: {{at_most: 2}}\n{SPLIT}", ["E_TOO_FEW"]),
        (rows(label=lambda row: row % 3), "active", SPLIT, ["E_LABEL"]),
        (rows(), "active", f"align: {{id_form: integer}}\n{SPLIT}", ["E_ID"]),
        (rows(), "active", f"align: {{id_form: [text, integer]}}\n{SPLIT}", ["E_CONFIG"]),
        (rows(head="id,x,kind,lable"), "active", SPLIT, ["E_COLUMN"]),
        ("id\n" + "".join(f"r{row}\n" for row in range(9)), "passive", SPLIT, ["E_NO_FEATURES"]),
        ("id,x\n" + "".join(f"r{row},0\n" for row in range(9)), "passive", LOGISTIC, ["E_NO_FEATURES"]),
        ("id,x\n" + "".join(f"r{row},{row}00\n" for row in range(9)), "passive", LOGISTIC, ["E_OVERFLOW"]),
    ],
)
def test_every_error_of_a_job(tmp_path: Path, content: str, role: str, text: str, expected: list[str]) -> None:
    spec = "align: {protocol: psi}\n" + text if text == LOGISTIC else text
    checked = check_table(settings_of(tmp_path, content, role), job=job(spec))
    assert codes(checked) == expected
    for error in checked.errors:
        assert error.message
        assert "Traceback" not in str(error)


def test_what_a_job_would_do_with_each_column(tmp_path: Path) -> None:
    content = "id,x,kind,opened,label\n" + "".join(
        f"r{row},{2.0**row},k{row // 25},2024-02-{1 + row % 28:02},{row % 2}\n" for row in range(60)
    )
    settings = settings_of(tmp_path, content)
    split = check_table(settings, job=job(SPLIT)).job
    assert split is not None
    assert [f"{column.name}: {column}" for column in split.columns] == [
        "x: numeric, quantile",
        "kind: categorical, 3 levels",
        "opened: date, standard, weekday",
    ]
    logistic = check_table(settings, job=job("align: {protocol: psi}\ntrain: {algorithm: logistic}\n")).job
    assert logistic is not None
    assert [column.transform for column in logistic.columns] == ["standard", None, "standard"]
    aligns = check_table(settings, job=job()).job
    assert aligns is not None
    assert aligns.columns == ()


def test_text_is_refused_by_a_job_that_trains_and_by_no_other(tmp_path: Path) -> None:
    content = "id,x,note,label\n" + "".join(f"r{row},{row},canary {row},{row % 2}\n" for row in range(1200))
    settings = settings_of(tmp_path, content)
    checked = check_table(settings, job=job(SPLIT))
    assert codes(checked) == ["E_TEXT_COLUMN"]
    with pytest.raises(DataError, match="column 'note' is text") as caught:
        read_input(settings, job(SPLIT))
    assert str(caught.value) == str(checked.errors[0])
    assert len(read_input(settings, job())) == 1200
    assert codes(check_table(settings)) == codes(check_table(settings, job=job())) == []
    declared = settings_of(tmp_path, content, data={"columns": {"note": "categorical"}})
    assert codes(check_table(declared, job=job(SPLIT))) == []


def test_the_first_error_is_that_of_the_node(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, rows(2, label=lambda row: 7) + "r0,text,k,1\n", data={"columns": {"x": "numeric"}}, least=9
    )
    checked = check_table(settings, job=job(SPLIT))
    assert codes(checked) == ["E_DUP_IDS", "E_TOO_FEW", "E_LABEL", "E_NUMERIC"]
    with pytest.raises(VflError) as caught:
        read_input(settings, job(SPLIT))
    assert str(caught.value) == str(checked.errors[0])


def test_what_the_settings_do_not_allow_comes_first(tmp_path: Path) -> None:
    limits = {"protocols": ("psi",), "size": {"parameters": 5, "rows": 50}}
    settings = settings_of(tmp_path, rows(label=lambda row: 0), everyone=limits)
    assert codes(check_table(settings, job=job(SPLIT))) == ["E_POLICY", "E_ONE_CLASS", "E_TOO_MANY"]
    other = parse(PARTIES.replace("clinic", "bank") + SPLIT, Job, source="job")
    assert codes(check_table(settings_of(tmp_path, rows()), job=other)) == ["E_ROLE"]


def test_a_model_larger_than_allowed_with_the_columns_of_this_table(tmp_path: Path) -> None:
    wide = "id,label," + ",".join(f"x{c}" for c in range(40)) + "\n"
    content = wide + "".join(f"r{row},{row % 2}" + f",{row}" * 40 + "\n" for row in range(9))
    settings = settings_of(tmp_path, content, everyone={"size": {"parameters": 300}})
    checked = check_table(settings, job=job(SPLIT))
    assert codes(checked) == ["E_POLICY"]
    assert "weights of a model" in checked.errors[0].message


def test_without_a_job(tmp_path: Path) -> None:
    assert codes(check_table(settings_of(tmp_path, rows()))) == []
    assert codes(check_table(settings_of(tmp_path, rows(label=lambda row: row % 5)))) == []
    assert codes(check_table(settings_of(tmp_path, rows(head="id,x,kind,lable")))) == ["E_COLUMN"]
    assert codes(check_table(settings_of(tmp_path, rows(head="id,x,kind,lable"), "passive"))) == []
    assert codes(check_table(settings_of(tmp_path, rows(), least=100))) == ["E_TOO_FEW"]
    assert codes(check_table(settings_of(tmp_path))) == ["E_CONFIG"]
    (tmp_path / "table.csv").unlink()
    gone = check_table(settings_of(tmp_path).model_copy(update={"data": Data(path=tmp_path / "table.csv")}))
    assert (codes(gone), gone.profile) == (["E_FILE"], None)


def test_a_coordinator_and_a_job_that_predicts_have_nothing_to_check(tmp_path: Path) -> None:
    notary = Settings(name="notary", role="coordinator", listen="127.0.0.1:0", insecure_loopback=True)
    with pytest.raises(UsageError, match="coordinator"):
        check_table(notary)
    with pytest.raises(UsageError, match="predicts"):
        check_table(settings_of(tmp_path, rows()), job=job("predict: {model: trial-1, to: active}\n"))


def started(settings: Settings) -> StartCheck:
    checking = StartCheck(settings)
    checking.start()
    checking.join(240)
    return checking


def test_a_node_that_starts_says_what_is_wrong_to_its_owner_and_in_its_log(tmp_path: Path) -> None:
    content = rows() + "r0,1,canary,1\n"
    with capture_logs() as lines:
        health = started(settings_of(tmp_path, content)).health()
    assert health is not None
    assert (health["status"], health["rows"], health["whole"]) == ("unusable", 61, True)
    (error,) = health["errors"]
    assert error["code"] == "E_DUP_IDS"
    assert "table.csv:62:id" in error["message"]
    assert error["hint"]
    (line,) = lines
    assert (line["log_level"], line["code"], line["reason"]) == ("warning", "E_DUP_IDS", error["message"])
    assert "canary" not in f"{health} {lines}"


def test_of_a_large_table_a_node_reads_only_the_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_check, "HEAD_ROWS", 20)
    with capture_logs() as lines:
        health = started(settings_of(tmp_path, rows(label=lambda row: row // 30), least=30)).health()
    assert health is not None
    assert (health["status"], health["rows"], health["whole"], health["errors"]) == ("usable", 20, False, [])
    assert lines == []


def test_nothing_is_checked_where_there_is_no_table_or_the_owner_does_not_want_it(tmp_path: Path) -> None:
    notary = Settings(name="notary", role="coordinator", listen="127.0.0.1:0", insecure_loopback=True)
    assert started(notary).health() is None
    assert started(settings_of(tmp_path, rows(), data={"check": False})).health() is None


def test_a_slow_reader_does_not_delay_the_start_and_one_that_breaks_leaves_it_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(*_: Any, **__: Any) -> TableCheck:
        go_on.wait(240)
        raise RuntimeError("of the reader of a package: canary")

    monkeypatch.setattr(start_check, "check_table", slow)
    node = Node(settings_of(tmp_path, rows()))
    try:
        with capture_logs() as lines:
            node.start()
            assert node.health()["data"] == {"status": "checking"}
            go_on.set()
            node._data.join(240)
        assert node.health()["data"] == {"status": "unknown"}
        assert [line["error"] for line in lines if "error" in line] == ["RuntimeError"]
        assert "canary" not in str(lines)
    finally:
        go_on.set()
        node.stop()


def test_a_node_that_starts_with_a_good_table(tmp_path: Path) -> None:
    node = Node(settings_of(tmp_path, rows()))
    try:
        node.start()
        node._data.join(240)
        health = node.health()
        assert health["status"] == "ok"
        assert (health["data"]["status"], health["data"]["rows"], health["data"]["whole"]) == ("usable", 60, True)
    finally:
        node.stop()


AUDITED: dict[str, Any] = {"audit": {"membership": False, "features": {"columns": ["kind", "x"]}}}
SPLITTING: dict[str, Any] = {
    "audit": {"membership": False},  # no estimate of the joint attack, which takes seconds
    "defences": [{"name": "noise", "sigma": 1}, {"name": "fbs", "columns": ["kind"]}],
}


@pytest.mark.parametrize("protected", [AUDITED, SPLITTING])
def test_columns_that_are_audited_or_protected_are_looked_for_before_a_job(tmp_path: Path, protected: dict[str, Any]) -> None:
    def found(content: str, text: str = "", **more: Any) -> tuple[str, ...]:
        checked = check_table(settings_of(tmp_path, content, "passive", **protected), job=job(text) if text else None, **more)
        return tuple(f"{error.code} {error.message} {error.hint}" for error in checked.errors)

    good = rows(1200, "id,x,kind,z")
    assert found(good) == found(good, SPLIT) == ()
    (absent,) = found(rows(1200, "id,x,sort,z"), SPLIT)
    setting = "audit.features.columns" if protected is AUDITED else "defences.1 (fbs): columns"
    assert absent.startswith(f"E_COLUMN {setting}: a column is not in the table of lab it is 'kind'")
    (same,) = found(good.replace("k1", "k0").replace("k2", "k0"))
    assert same.startswith(f"E_CONFIG {setting}: a column has one value only")
    many = "id,x,kind,z\n" + "".join(f"r{row},{row},k{row % 300},{row % 2}\n" for row in range(1200))
    (levels,) = found(many, SPLIT)
    assert levels.startswith(f"E_CONFIG {setting}: a column has more than 256 categories")
    no_embeddings = LOGISTIC.replace("none", "standard") + "align: {protocol: psi}"
    assert found(rows(1200, "id,x,sort,z"), no_embeddings) == ()
    assert found(rows(1200, "id,x,sort,z"), "align: {protocol: psi}") == ()  # trains nothing
    head = good.replace("k1", "k0").replace("k2", "k0") + "r9999,1,k1,0\n"
    assert found(head, rows=1100) == ()  # a column that does not vary in the first rows may vary in others
    assert found(rows(1200, "id,x,sort,z"), rows=1100)[0].startswith("E_COLUMN")
    with capture_logs() as lines:
        health = started(settings_of(tmp_path, rows(1200, "id,x,sort,z"), "passive", **protected)).health()
    assert health is not None
    assert "'kind'" in health["errors"][0]["hint"]
    assert [line["code"] for line in lines] == ["E_COLUMN"]
    assert "kind" not in str(lines)


def test_an_audit_that_would_know_too_few_rows_is_told_before_a_job(tmp_path: Path) -> None:
    checked = check_table(settings_of(tmp_path, rows(900, "id,x,kind,z"), "passive", **AUDITED), job=job(SPLIT))
    assert codes(checked) == ["E_CONFIG"]
    assert "45 of this party's rows would be taken as known" in checked.errors[0].message


SPLIT_LAST = f"align: {{protocol: psi}}\n{SPLIT}evaluate: {{hold_out: {{last: 0.2}}}}\n"


def ordered(count: int = 60, missing: int = -1) -> str:
    when = ("" if row == missing else f"2024-01-{1 + row % 28:02}" for row in range(count))
    cells = (f"r{row},{row / 8},{date},u{row % 5},{row % 2}\n" for row, date in enumerate(when))
    return "id,x,when,user,label\n" + "".join(cells)


def test_order_and_groups_are_shown_and_are_no_features(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ordered(), data={"order": "when", "group": "user"})
    checked = check_table(settings, job=job(SPLIT_LAST))
    assert codes(checked) == []
    assert checked.profile is not None
    assert checked.job is not None
    found = {column.name: (column.use, column.missing, column.distinct) for column in checked.profile.columns}
    assert (found["when"], found["user"]) == (("order", 0, 28), ("group", 0, 5))
    assert checked.job.features == ("x",)
    unread = check_table(settings, job=job(SPLIT)).profile
    assert unread is not None
    assert [column.missing for column in unread.columns if column.use == "order"] == [None]


@pytest.mark.parametrize(
    ("missing", "data", "code"), [(7, {"order": "when"}, "E_ROW_ORDER"), (-1, {"group": "user"}, "E_CONFIG")]
)
def test_a_job_that_holds_out_the_last_records_needs_their_order(
    tmp_path: Path, missing: int, data: dict[str, str], code: str
) -> None:
    """The check finds what the job would: the same error. Control: another job does not look at the order."""
    settings = settings_of(tmp_path, ordered(missing=missing), data=data)
    checked = check_table(settings, job=job(SPLIT_LAST))
    assert codes(checked) == [code]
    with pytest.raises(DataError) as refused:
        read_input(settings, job(SPLIT_LAST))
    assert refused.value.message == checked.errors[0].message
    assert "when" not in refused.value.for_peer
    assert codes(check_table(settings, job=job(SPLIT))) == []
    assert read_input(settings, job(SPLIT)).order is None
