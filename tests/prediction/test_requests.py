"""Requests have their turn once each, and are answered with ids as they came."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import read_table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import PeerError, PeerLost, PolicyError, UsageError
from vfl_node.prediction.records import Records
from vfl_node.prediction.requests import MOST_WAITING, PredictionRequest, Requests
from vfl_node.settings.node import Data
from vfl_node.training.predictor import Predicted


@pytest.fixture
def records(tmp_path: Path) -> Records:
    path = tmp_path / "records.csv"
    path.write_text('id,of\n"b, with a comma",1\n\na,2\n')
    data = Data(path=path, id=("id", "of"))
    table = read_table(data, id_form=("text", "integer"), needs_label=False, party="clinic")
    with closing(open_input(data, party="clinic")) as reader:
        return Records(table, TextColumns(reader), ("id", "of"))


def test_an_answer_spells_ids_as_they_came(records: Records) -> None:
    assert records.csv(np.array([0.1, 1 / 3])) == b'id,of,probability\n"b, with a comma",1,0.1\na,2,0.3333333333333333\n'
    assert replace(records, task="regression").csv(np.array([-7.5, 1e6])).splitlines()[0] == b"id,of,prediction"
    several = np.array([[0.25, 0.5, 0.25], [0, 1, 0]], dtype=np.float64)
    assert records.csv(several).splitlines()[0] == b"id,of,probability_0,probability_1,probability_2"
    made = Predicted(np.array([1]), np.array([0.5]), shared=7)
    assert records.shared_csv(made) == b'id,of,probability\n"b, with a comma",1,\na,2,0.5\n'


def test_a_record_has_a_line_or_a_row(records: Records, tmp_path: Path) -> None:
    path = tmp_path / "records.arrow"
    rows = pa.table({"id": ["b", "a"], "of": [1, 2]})
    with pa.ipc.new_file(path, rows.schema) as sink:
        sink.write_table(rows)
    with closing(open_input(Data(path=path, id=("id", "of")), party="clinic")) as reader:
        without_lines = replace(records, text=TextColumns(reader))
    assert Requests().ask(records).place(1) == "line 4"
    assert Requests().ask(without_lines).place(1) == "row 2"


def test_an_answer_names_the_class_beside_the_probability(records: Records) -> None:
    named = replace(records, classes=("benign", "malignant, or so"), threshold=0.3)
    assert named.csv(np.array([0.3, 0.2])) == (
        b'id,of,probability,class\n"b, with a comma",1,0.3,"malignant, or so"\na,2,0.2,benign\n'
    )
    made = Predicted(np.array([1]), np.array([0.5]), shared=7)
    assert named.shared_csv(made) == b'id,of,probability,class\n"b, with a comma",1,,\na,2,0.5,"malignant, or so"\n'
    several = replace(records, classes=("ape", "bee", "cat")).csv(np.array([[0.25, 0.5, 0.25], [0, 0, 1]]))
    assert several.splitlines() == [
        b"id,of,probability_ape,probability_bee,probability_cat,class",
        b'"b, with a comma",1,0.25,0.5,0.25,bee',
        b"a,2,0.0,0.0,1.0,cat",
    ]


def test_requests_wait_their_turn(records: Records) -> None:
    requests = Requests()
    assert requests.take() is None
    assert not requests.bell.is_set()
    first, second, third = (requests.ask(records) for _ in range(3))
    assert requests.take() is first
    assert requests.take() is first  # in the next attempt, if it was not answered
    second.withdraw()
    first.answer(np.array([0.5, 0.5]))
    assert requests.take() is third
    fourth = requests.ask(records)
    assert requests.take_all() == [third, fourth] == requests.take_all()
    fourth.withdraw()
    assert first.place(1) == "line 4"
    assert first.ready() == b'id,of,probability\n"b, with a comma",1,0.5\na,2,0.5\n'
    assert third.ready() is None
    requests.bell.clear()
    requests.close()
    assert requests.bell.is_set()
    with pytest.raises(UsageError, match="being cancelled"):
        requests.ask(records)
    requests.end(UsageError("over", code="E_TEST"))
    with pytest.raises(UsageError, match="over"):
        third.ready()
    with pytest.raises(UsageError, match="over"):
        requests.ask(records)


def test_who_waits_is_told_once_however_a_request_ends(records: Records) -> None:
    requests, told = Requests(), list[str]()
    asked = {name: requests.ask(records) for name in ("answered", "failed", "withdrawn", "ended", "late")}
    for name in ("answered", "failed", "withdrawn", "ended"):
        asked[name].call_when_over(partial(told.append, name))
    assert told == []
    asked["answered"].answer(np.array([0.5, 0.5]))
    asked["failed"].fail(UsageError("so", code="E_TEST"))
    asked["withdrawn"].withdraw()
    requests.end(UsageError("over", code="E_TEST"))
    asked["answered"].withdraw()
    asked["late"].call_when_over(partial(told.append, "late"))
    assert told == ["answered", "failed", "withdrawn", "ended", "late"]
    assert asked["answered"].ready() is not None


REFUSED = PeerError("lab stopped in phase 'predict': its policy does not allow the job (budget) (E_BUDGET)")


def test_of_an_exchange_that_a_peer_refused_only_who_was_alone_in_it_is_told_and_the_others_are_asked_one_by_one(
    records: Records,
) -> None:
    requests, left = Requests(), list[PredictionRequest]()
    requests.ask_again = left.extend
    first, second, gone = (requests.ask(records) for _ in range(3))
    assert requests.take_all() == [first, second, gone]
    gone.withdraw()
    late = requests.ask(records)
    requests.end(REFUSED)
    assert left == [first, second, late]
    assert not any(request.over for request in left)
    with pytest.raises(PeerError):
        requests.ask(records)

    following, again = Requests(), list[PredictionRequest]()
    following.ask_again = again.extend
    newer = following.ask(records)
    following.add_first(left)
    assert following.take_all() == [first] == following.take_all()
    first.answer(np.array([0.5, 0.5]))
    assert following.take_all() == [second]
    following.end(REFUSED)
    assert again == [late, newer]
    with pytest.raises(PeerError, match="E_BUDGET"):
        second.ready()

    last = Requests()
    last.ask_again = again.extend
    last.add_first([late, newer])
    assert last.take_all() == [late, newer]  # neither shared what was refused


@pytest.mark.parametrize("why", ["nothing was asked", "it is cancelled", "it was lost", "no other service answers"])
def test_a_service_that_ends_for_another_reason_tells_everybody(records: Records, why: str) -> None:
    requests, left = Requests(), list[PredictionRequest]()
    if why != "no other service answers":
        requests.ask_again = left.extend
    waiting = [requests.ask(records) for _ in range(2)]
    if why != "nothing was asked":
        requests.take_all()
    if why == "it is cancelled":
        requests.close()
    requests.end(PeerLost("gone") if why == "it was lost" else REFUSED)
    assert left == []
    assert all(request.over for request in waiting)


def test_too_many_requests_are_refused(records: Records) -> None:
    requests = Requests()
    asked = [requests.ask(records) for _ in range(MOST_WAITING)]
    with pytest.raises(PolicyError) as caught:
        requests.ask(records)
    assert caught.value.code == "E_BUSY"
    asked[7].withdraw()
    requests.ask(records)
