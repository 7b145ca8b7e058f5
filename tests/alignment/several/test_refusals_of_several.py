"""With several passive parties every list, mark and size that the protocol does not permit is refused; its sender is named."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sessions import limits_from
from tests.alignment.conftest import IN_MEMORY
from tests.alignment.several.parties import NAMES, TOY, fresh_memories, run_several
from tests.alignment.test_refusals import plus_order_two, with_first
from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.several.route import Route
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, PolicyError, ProtocolError, StateError
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.settings.limits import Budgets, Limits, SizeLimits
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

IDS = [[b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 12)], [b"%d" % i for i in range(3, 15, 2)]]
N = len(IDS)
ROUTE = Route(NAMES[1:N])
SENT = [(name, NAMES[0], item) for number, name in ROUTE.numbered for item in ROUTE.from_passive(number)]
SENT += [(NAMES[0], name, item) for number, name in ROUTE.numbered for item in ROUTE.from_active(number)]


def each(sent):
    """One case for each list; those of the second passive party, which go the same ways, are slow together."""
    slow = [pytest.param(*case, marks=pytest.mark.slow if NAMES[2] in case else ()) for case in sent]
    return pytest.mark.parametrize(("sender", "receiver", "item"), slow)


EVERY_LIST = each(SENT)
SHARED_ORDER = ROUTE.last
STRANGER = TOY.hash_to_group([b"an id to test"], b"vfl-node-v1-psu-toy")


def refused_by(run, name, code):
    """What a party ended with; nobody else has a result."""
    error = run[name]
    assert getattr(error, "code", None) == code, error
    done = [other for other in run.names if isinstance(run[other], Alignment)]
    assert all(isinstance(run[other], PeerLost) for other in run.names if other not in (name, *done))
    assert not done or f"round 3 list {NAMES.index(name)} hop {SHARED_ORDER}" in run.received(name)  # they had all they need
    return error


@EVERY_LIST
def test_an_invalid_element(sender, receiver, item):
    run = run_several("psu", IDS, change={(sender, item): with_first(1, "big")})
    error = refused_by(run, receiver, "E_ELEMENT")
    assert isinstance(error, ProtocolError)
    assert error.message.startswith(f"psu {item} from {sender}: an element is 0, 1 or p-1")


@EVERY_LIST
def test_an_element_that_occurs_twice(sender, receiver, item):
    run = run_several("psu", IDS, change={(sender, item): lambda rows: np.concatenate([rows[:1], rows[:-1]])})
    is_order = item == f"round 2 hop {SHARED_ORDER}"
    error = refused_by(run, receiver, "E_UNION" if is_order and receiver != NAMES[0] else "E_DUPLICATE")
    assert error.message.startswith(f"psu {item} from {sender}: ")


@each([sent for sent in SENT if "list" in sent[2] and sent[0] == NAMES[0]])
def test_an_element_that_occurs_twice_but_for_a_small_order_component(sender, receiver, item):
    run = run_several("psu", IDS, group=Curve25519(), change={(sender, item): plus_order_two})
    if item != f"round 3 list {NAMES.index(receiver)} hop {SHARED_ORDER}":  # whose powers it looks up in the shared order
        refused_by(run, receiver, "E_DUPLICATE")
    else:
        refused_by(run, receiver, "E_UNION")


@EVERY_LIST
@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: np.concatenate([rows, STRANGER])], ids=["few", "many"])
def test_a_wrong_count(sender, receiver, item, change):
    run = run_several("psu", IDS, change={(sender, item): change})
    if sender == NAMES[0] and item.startswith("round 2") and not item.endswith(f"hop {SHARED_ORDER}"):
        # The receiver knows bounds only; the active party counts what comes back.
        error = refused_by(run, NAMES[0], "E_COUNT")
    else:
        error = refused_by(run, receiver, "E_COUNT")
        assert f"from {sender} " in error.message


@each([sent for sent in SENT if sent[1] == NAMES[0] and not sent[2].startswith("round 1")])
def test_an_element_that_leads_outside_the_shared_order(sender, receiver, item):
    """What no receiver can check by itself shows in the end: a party's own pseudonym is not in the shared order."""
    run = run_several("psu", IDS, change={(sender, item): lambda rows: np.concatenate([STRANGER, rows[1:]])})
    assert any(getattr(result, "code", "") == "E_UNION" for result in run.results.values())


def test_the_shared_order_must_be_sorted():
    last = NAMES[N - 1]
    error = refused_by(run_several("psu", IDS, change={(last, "round 2 hop 2"): lambda rows: rows[::-1]}), NAMES[0], "E_UNION")
    assert error.message == f"psu round 2 hop 2 from {last}: the shared order is not sorted and distinct"
    run = run_several("psu", IDS, change={(NAMES[0], "round 2 hop 2"): lambda rows: rows[::-1]})
    assert "from clinic: the shared order is not sorted" in refused_by(run, NAMES[1], "E_UNION").message


# ---- later attempts, later jobs


@pytest.fixture
def kept():
    """What all parties keep of a job and of each other."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch:
        folders = [Path(scratch, name) for name in NAMES[:N]]
        yield {"folders": folders, "pins": [MemoryPins() for _ in IDS], "memories": fresh_memories(NAMES[:N])}


@pytest.mark.parametrize("protocol", ["psu", "psi"])
@pytest.mark.parametrize("lose", [(), ("folders",), ("pins", "folders")], ids=["nothing", "folders", "all"])
def test_the_same_attempt_again_is_the_same_byte_by_byte(kept, protocol, lose):
    first = run_several(protocol, IDS, **kept)
    again = run_several(protocol, IDS, **{name: value for name, value in kept.items() if name not in lose})
    for name, rows in first.lists.items():
        assert np.array_equal(rows, again.lists[name])
    for name in first.names:
        assert np.array_equal(first[name].rows, again[name].rows)
    sent = sum(len(rows) - spy.starts[name] for spy in again.spies.values() for name, rows in spy.lists.items())
    assert sent == (0 if not lose else sum(len(rows) for lists in first.sent.values() for rows in lists.values()))


@EVERY_LIST
@pytest.mark.parametrize(
    "lose",
    [pytest.param((), id="nothing"), *(pytest.param((of,), id=of, marks=pytest.mark.slow) for of in ("folders", "pins"))],
)
def test_another_list_in_a_later_attempt(kept, sender, receiver, item, lose):
    """Refused by its pin, by the SHA-256 of what is held of it, or by both; nothing answers it."""
    run_several("psu", IDS, **kept)
    rest = {name: value for name, value in kept.items() if name not in lose}
    run = run_several("psu", IDS, **rest, change={(sender, item): lambda rows: np.concatenate([rows[1:], rows[:1]])})
    assert isinstance(refused_by(run, receiver, "E_REPLAY"), StateError)


@EVERY_LIST
def test_another_list_under_the_marks_of_an_earlier_job(kept, sender, receiver, item):
    """Every list of round 1, at every hop, and each party's own list of round 3 are held to them."""
    run_several("psu", IDS, memories=kept["memories"])
    change = {(sender, item): lambda rows: np.concatenate([rows[1:], rows[:1]])}
    run = run_several("psu", IDS, memories=kept["memories"], seed=2, job_id="later", change=change)
    if item.startswith("round 1") or (item.startswith("round 3") and item.endswith("hop 0")):
        error = refused_by(run, receiver, "E_MARK")
        assert error.message.startswith(f"psu {item} from {sender}: ")
    else:
        assert not any(getattr(result, "code", "") == "E_MARK" for result in run.results.values())


# ---- marks and sizes


def relays(kind, change):
    def other(message):
        changed = type(message)()
        changed.CopyFrom(message)
        change(changed)
        return changed

    return {kind: other}


@pytest.mark.parametrize(
    ("kind", "change", "code", "text"),
    [
        ("OtherMarks", lambda message: message.marks.add(mark=bytes(32)), "E_COUNT", "clinic relays what 2 parties announced"),
        ("OtherMarks", lambda message: message.ClearField("marks"), "E_COUNT", "clinic relays what 0 parties announced"),
        (
            "OtherMarks",
            lambda message: setattr(message.marks[0], "mark", b"short"),
            "E_PROTOCOL",
            "insurer announces a mark of 5",
        ),
        ("OtherSizes", lambda message: message.ClearField("counts"), "E_COUNT", "clinic relays what 0 parties announced"),
        ("OtherSizes", lambda message: message.counts.__setitem__(0, 2**40), "E_TOO_MANY", "insurer announces"),
        ("OtherMarks", lambda message: [message.marks.add() for _ in range(8)], "E_SIZE", "OtherMarks"),
        ("OtherSizes", lambda message: message.counts.extend([1] * 8), "E_SIZE", "OtherSizes"),
    ],
)
def test_what_the_active_party_relays_is_checked(kind, change, code, text):
    run = run_several("psu", IDS, relay=relays(kind, change))
    assert run["lab"].code == code
    assert text in run["lab"].message
    assert not any(name.startswith("round 1") and "hop 1" in name for name in run.lists)


def test_each_party_checks_the_size_of_each_other():
    small = run_several("psu", IDS, limits_of={"lab": Limits(min_own_rows=1, min_peer_rows=7)})
    assert isinstance(small["lab"], PolicyError)
    assert (small["lab"].code, small["lab"].message) == (
        "E_TOO_FEW",
        "insurer announces 6 records, and this node's minimum is 7",
    )
    large = run_several("psu", IDS, limits_of={"insurer": limits_from(1, size=SizeLimits(rows=8))})
    assert (large["insurer"].code, large["insurer"].message) == (
        "E_TOO_MANY",
        "clinic announces 9 records, and this node accepts at most 8",
    )


@pytest.mark.parametrize("name", NAMES[:N])
def test_another_size_in_a_later_attempt(kept, name):
    def announce(message):
        message.count -= 1
        return message

    run_several("psu", IDS, **kept)
    run = run_several("psu", IDS, **kept, greet={name: announce})
    refusing = [other for other in run.names if getattr(run[other], "code", "") == "E_REPLAY"]
    assert refusing
    assert all(run[other].message.startswith(f"psu size of {name} ") for other in refusing)


class Counting(MemoryOfOneRun):
    """A memory with the budget of a node's."""

    def __init__(self, secret):
        super().__init__(secret)
        self.sets = set()

    def count(self, what):
        if what.kind == "inputs":
            self.sets.add(what.line)
            if len(self.sets) > what.limit:
                raise PolicyError("too many", code="E_BUDGET", hint="", for_peer="")
        return 1


@pytest.fixture
def counting():
    return [{other: Counting(memory.secret) for other, memory in of.items()} for of in fresh_memories(NAMES[:N])]


TWO_INPUTS = limits_from(1, budgets=Budgets(alignments=2))


def test_a_change_of_any_set_counts_at_every_party(counting):
    for ids in (IDS, [IDS[0][::-1], *IDS[1:]], [*IDS[:2], IDS[2][1:]]):
        assert isinstance(run_several("psu", ids, memories=counting, limits=TWO_INPUTS)["lab"], Alignment)
    run = run_several("psu", [*IDS[:2], IDS[2][2:]], memories=counting, limits=TWO_INPUTS)
    assert {run[name].code for name in run.names} <= {"E_BUDGET", "E_PEER_LOST"}
    assert run["clinic"].code == "E_BUDGET"
    assert all({len(memory.sets) for memory in of.values()} <= {2, 3} for of in counting)
    assert not run.lists


def test_every_other_minimum_of_the_overlap_counts_since_it_tells_a_bit_more(counting):
    def again(least):
        wish = TWO_INPUTS.model_copy(update={"min_overlap": least})
        return run_several("psu", IDS, memories=counting, limits=TWO_INPUTS, limits_of={"insurer": wish})

    assert [again(least)["clinic"].code for least in (9, 8, 9)] == ["E_OVERLAP"] * 3
    run = again(7)
    assert run["clinic"].code == "E_BUDGET"
    assert not any(isinstance(message, alignment_pb2.SetSize) for spy in run.spies.values() for message in spy.messages)


@pytest.mark.parametrize(("name", "of"), [("lab", "insurer"), ("insurer", "lab")])
def test_a_job_does_not_go_on_with_another_memory(kept, name, of):
    """What blinds a set comes from what is remembered of all others, also of those with whom there is no conversation."""
    run_several("psu", IDS, **kept)
    lost = [dict(memories) for memories in kept["memories"]]
    lost[NAMES.index(name)][of] = MemoryOfOneRun(Randomness(bytes([9]) * 32))
    run = run_several("psu", IDS, **{**kept, "memories": lost})
    assert {getattr(result, "code", "") for result in run.results.values()} & {"E_STATE_LOST"}
    assert not any(name.startswith("round 2") for name in run.lists)
    assert isinstance(run_several("psu", IDS, **kept)["lab"], Alignment)
