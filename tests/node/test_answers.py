"""Answers about labels that a node has given a partner: one secret for all partners, and what becomes of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vfl_node.cli import app
from vfl_node.errors import StateError, UsageError
from vfl_node.node.own_secret import FILE
from vfl_node.node.partners import Partner, accept_loss, accept_new_answers
from vfl_node.node.store import Store
from vfl_node.session.answers import Answer

ONE, TWO = (Answer("default", "income", "2 classes", epsilon) for epsilon in (1.0, 2.0))


def test_all_partners_and_every_start_have_the_same_secret(tmp_path: Path) -> None:
    first = Partner(tmp_path, "lab").own.bytes(16)
    assert Partner(tmp_path, "shop").own.bytes(16) == first
    assert Partner(tmp_path, "lab").own.bytes(16) == first
    assert Partner(tmp_path / "elsewhere", "lab").own.bytes(16) != first
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert Partner(tmp_path, "lab").secret.bytes(16) != first


def test_jobs_that_need_it_first_at_once_find_one_secret(tmp_path: Path) -> None:
    partners, found = [Partner(tmp_path, f"lab{number}") for number in range(8)], []
    threads = [threading.Thread(target=lambda of=of: found.append(of.own.bytes(16))) for of in partners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_other_answers_about_the_same_labels_add_up_and_the_same_ones_do_not(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    assert [partner.answer(what) for what in (ONE, ONE, TWO, TWO, ONE)] == [1, 1, 3, 3, 3]
    assert Partner(tmp_path, "lab").answer(ONE) == 3
    assert partner.answer(Answer("default", "income", "3 classes", 1.0)) == 4
    assert partner.answer(Answer("default", "age", "2 classes", 1.0)) == 1
    assert partner.answer(Answer("other", "income", "2 classes", 1.0)) == 1
    assert Partner(tmp_path, "shop").answer(ONE) == 1
    names = {
        Answer(*of).name
        for of in (("a", "b c", "d", 1.0), ("a b", "c", "d", 1.0), ("a", "b c", "d", 2.0), ("a", "b c", "e", 1.0))
    }
    assert len(names) == 4


def test_what_is_stored_has_neither_names_of_columns_nor_the_secret(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    partner.answer(ONE)
    stored = (tmp_path / "lab" / "ledger.log").read_bytes()
    assert b"income" not in stored
    assert (tmp_path / FILE).read_bytes()[-32:].hex().encode() not in stored


@pytest.mark.parametrize("how", ["gone", "another"])
def test_under_another_secret_nothing_is_answered_until_the_owner_accepts_it(tmp_path: Path, how: str) -> None:
    Partner(tmp_path, "lab").answer(ONE)
    kept = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).unlink()
    if how == "another":
        (tmp_path / "x").mkdir()
        Partner(tmp_path / "x", "lab").own.bytes(1)
        (tmp_path / "x" / FILE).rename(tmp_path / FILE)
    for _ in range(2):
        with pytest.raises(StateError, match="gone") as raised:
            Partner(tmp_path, "lab").answer(ONE)
        assert raised.value.code == "E_STATE_LOST"
        assert "income" not in raised.value.message + raised.value.hint
    assert Partner(tmp_path, "shop").answer(ONE) == 1  # who has no answer has nothing to compare
    lost = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(kept)
    assert Partner(tmp_path, "lab").answer(ONE) == 1  # from the backup
    (tmp_path / FILE).write_bytes(lost)
    with pytest.raises(StateError):
        Partner(tmp_path, "lab").answer(ONE)
    assert accept_new_answers(tmp_path, "lab")
    assert not accept_new_answers(tmp_path, "lab")
    assert Partner(tmp_path, "lab").answer(ONE) == 2  # a second answer about each label
    assert Partner(tmp_path, "lab").answer(ONE) == 2


def test_a_damaged_secret_is_not_replaced(tmp_path: Path) -> None:
    Partner(tmp_path, "lab").answer(ONE)
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-1] ^= 1
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(StateError) as raised:
        Partner(tmp_path, "lab").answer(ONE)
    assert raised.value.code == "E_STATE_CORRUPT"


def test_a_trial_with_a_seed_repeats_its_secret(tmp_path: Path) -> None:
    from vfl_node.execution.trial import Trial

    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2), ("d", None), ("e", None)):
        store = Store(tmp_path / name, Trial.from_number(seed, "clinic"))
        found.append(store.partner("lab").own.bytes(8))
        assert store.partner("shop").own.bytes(8) == found[-1]
        store.close()
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_the_owner_accepts_it_by_a_command(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        "name: clinic\nrole: active\ninsecure_loopback: true\nlisten: 127.0.0.1:0\npeers: {lab: {}}\nstate_dir: state\n"
    )
    partners = tmp_path / "state" / "partners"
    Partner(partners, "lab").answer(ONE)
    (partners / FILE).unlink()
    with pytest.raises(StateError):
        Partner(partners, "lab").answer(ONE)
    shown = CliRunner().invoke(app, ["accept-loss", "lab", "--config", str(config)])
    assert shown.exit_code == 0, shown.output
    assert "second answer" in shown.output
    assert Partner(partners, "lab").answer(ONE) == 2
    with pytest.raises(UsageError):
        accept_loss(Partner(partners, "lab"))
