"""The ledger says what crossed, with the numbers of the run; the runs themselves are what it is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from vfl_node.job import Align, Evaluate, Job, ObfuscatedSet
from vfl_node.training.glm.coordinator import result
from vfl_node.training.glm.decryption_log import DecryptionCount
from vfl_node.training.glm.disclosures import Numbers, learns
from vfl_node.transport.generated.vfl.v1 import training_pb2

TAYLOR = {"flow": "coordinator", "loss": "taylor"}
QUARTER = Evaluate(test_fraction=0.25)


def counts(learnt: Any, party: str) -> list[tuple[str, int | None]]:
    return [(entry.what, entry.count) for entry in learnt[party]]


def job(made: Any) -> Job:
    align = Align(protocol="apsi", obfuscation=ObfuscatedSet(size=40))
    return Job(name="trial", parties=made.parties, align=align, train=made.train, evaluate=made.evaluate)


def run(attempt: Any, shared: Any, train: Any, evaluate: Evaluate = QUARTER, **given: Any) -> tuple[Any, ...]:
    """What clinic, lab and, if there is one, the coordinator report of 40 shared rows: 30 to train on, and 10."""
    over, made = shared(genuine=32, labels=train.labels, classes=train.classes, **given), attempt(train, evaluate)
    clinic, lab = made(over)
    told = [clinic, lab]
    if made.parties.coordinator:
        told.append(result(job(made), {name: made.state.logs[name].read() for name in ("clinic", "lab")}))
    return (made, *told)


def test_two_parties(attempt: Any, shared: Any, logistic: Any) -> None:
    _, clinic, lab = run(attempt, shared, logistic())
    passive = [("rounds", 3), ("residuals", 90), ("gradient", 9)]
    active = [
        ("rounds", 3),
        ("scores", 90),
        ("masked gradient", 9),
        ("held-out scores", 10),
        ("loss", 3),
        ("features", 3),
    ]
    for told in (clinic, lab):
        assert set(told.disclosures) == {"clinic", "lab"}
        assert counts(told.disclosures, "clinic") == active
        assert counts(told.disclosures, "lab") == passive
        assert told.section.features == {"clinic": 3 if told is clinic else None, "lab": 3}
        assert told.section.decryptions == {"lab": 9}
        assert told.section.decrypted_bits == {"lab": 9 * 62}
        (masked,) = (entry.text for entry in told.disclosures["clinic"] if entry.what == "masked gradient")
        assert masked.endswith("such as residuals; of those it would have told lab 62 bits an entry, 558 in all")
        assert told.section.rounds == 3
        assert told.section.rows == 30


def test_what_was_decrypted_again_after_restarts_counts(attempt: Any, logistic: Any) -> None:
    """A sender that departs from the protocol has it told again, of other values."""
    made = job(attempt(logistic(flow="coordinator-open-scores"), QUARTER))
    again = DecryptionCount(step=2, requests=5, repeated=2, values=15, bits=15 * 62, columns=3)
    (masked,) = (entry.text for entry in result(made, {"lab": again}).disclosures["hub"] if entry.what == "masked gradient")
    assert masked.endswith("62 bits an entry, 930 in all")


def test_a_coordinator_that_only_decrypts(attempt: Any, shared: Any, logistic: Any) -> None:
    _, clinic, lab, hub = run(attempt, shared, logistic(flow="coordinator-open-scores", tolerance=1e-12))
    for told in (clinic, lab):
        assert counts(told.disclosures, "clinic") == [
            ("rounds", 3),
            ("scores", 90),
            ("held-out scores", 10),
            ("loss", 3),
            ("features", 3),
        ]
        assert counts(told.disclosures, "lab") == [("rounds", 3), ("residuals", 90), ("gradient", 9)]
        assert counts(told.disclosures, "hub") == [("rounds", 3), ("masked gradient", 9)]
    assert counts(hub.disclosures, "hub") == [("rounds", 3), ("masked gradient", 9)]
    assert ("scores", None) in counts(hub.disclosures, "clinic")  # it does not know how many rows there are
    assert ("held-out scores", None) in counts(hub.disclosures, "clinic")
    assert hub.section.features == {"clinic": None, "lab": 3}
    assert hub.section.decryptions == {"clinic": 0, "lab": 9}
    assert hub.section.rows is None


@pytest.mark.parametrize("tolerance", [0.0, 1e-12])
def test_a_coordinator_and_no_scores(attempt: Any, shared: Any, logistic: Any, tolerance: float) -> None:
    _, clinic, lab, hub = run(attempt, shared, logistic(**TAYLOR, tolerance=tolerance))
    losses = [("loss", 3)] if tolerance else []
    masked = [("masked loss", 3)] if tolerance else []
    active = [("rounds", 3), ("encrypted scores", 90), ("held-out scores", 10), ("gradient", 9), *losses, ("features", 3)]
    assert counts(clinic.disclosures, "clinic") == active
    # the lab does not know how many columns the clinic has
    assert counts(lab.disclosures, "clinic") == [(what, None if what == "gradient" else count) for what, count in active]
    assert (
        counts(clinic.disclosures, "lab")
        == counts(lab.disclosures, "lab")
        == [("rounds", 3), ("residuals", 90), ("gradient", 9)]
    )
    seen = [("rounds", 3), ("masked gradient", 9), ("masked gradient", 9), *masked]
    assert counts(clinic.disclosures, "hub") == counts(hub.disclosures, "hub") == seen
    squares = "squares" in next(entry.text for entry in clinic.disclosures["clinic"] if entry.what == "encrypted scores")
    assert squares == bool(tolerance)
    values = {"clinic": 9 + 3 * bool(tolerance), "lab": 9}
    assert clinic.section.decryptions == hub.section.decryptions == values
    assert lab.section.decryptions == {"lab": 9}
    bits = {"clinic": 9 * 109 + 3 * 97 * bool(tolerance), "lab": 9 * 109}
    assert clinic.section.decrypted_bits == hub.section.decrypted_bits == bits
    assert hub.section.features == clinic.section.features == {"clinic": 3, "lab": 3}


def test_labels_at_the_passive_party(attempt: Any, shared: Any, logistic: Any) -> None:
    train = logistic(**TAYLOR, tolerance=1e-12, labels="passive")
    _, clinic, lab, hub = run(attempt, shared, train, Evaluate(test_fraction=0), lab=4)
    for told in (clinic, lab):
        assert counts(told.disclosures, "clinic") == [("rounds", 3), ("residuals", 120), ("gradient", 9), ("features", 4)]
        assert counts(told.disclosures, "lab") == [
            ("rounds", 3),
            ("encrypted weights", 120),
            ("gradient", 12),
            ("loss", 3),
            ("features", 3),
        ]
        assert counts(told.disclosures, "hub") == [
            ("rounds", 3),
            ("masked gradient", 12),
            ("masked gradient", 9),
            ("masked loss", 3),
        ]
    assert counts(hub.disclosures, "hub") == counts(lab.disclosures, "hub")
    assert lab.section.decryptions == clinic.section.decryptions == hub.section.decryptions == {"clinic": 9, "lab": 15}
    assert hub.section.features == {"clinic": 3, "lab": 4}


@pytest.mark.parametrize("given", [{}, TAYLOR], ids=["two-party", "coordinator"])
def test_several_classes_count_as_often(attempt: Any, shared: Any, logistic: Any, given: Any) -> None:
    made, clinic, lab, *hub = run(attempt, shared, logistic(classes=4, **given))
    assert ("gradient", 36) in counts(lab.disclosures, "lab")
    assert clinic.section.decryptions["lab"] == 36
    assert all(told.section.decryptions["lab"] == 36 and told.section.features["lab"] == 3 for told in hub)
    assert made.state.logs["lab"].read().values == 36


def test_every_kind_of_message_has_an_entry(attempt: Any, shared: Any, logistic: Any) -> None:
    """What the table of who sees what says, checked on what was sent."""
    entries = {
        "scores": lambda made, to: any(
            isinstance(sent.message, training_pb2.Scores) and sent.message.step < 3 and sent.receiver == to
            for sent in made.transcript
        ),
        "held-out scores": lambda made, to: any(
            isinstance(sent.message, training_pb2.Scores) and sent.message.step == 3 and sent.receiver == to
            for sent in made.transcript
        ),
        "encrypted scores": lambda made, to: tensor(made, to, "scores"),
        "residuals": lambda made, to: tensor(made, to, "residuals"),
        "encrypted weights": lambda made, to: tensor(made, to, "weights"),
        "features": lambda made, to: any(
            isinstance(sent.message, training_pb2.Features) and sent.receiver == to for sent in made.transcript
        ),
    }
    for given in (
        {},
        {"flow": "coordinator-open-scores"},
        TAYLOR,
        {**TAYLOR, "tolerance": 1e-12},
        {**TAYLOR, "labels": "passive"},
    ):
        made, clinic, *_ = run(attempt, shared, logistic(**given), Evaluate(test_fraction=0))
        for party in ("clinic", "lab"):
            told = {entry.what for entry in clinic.disclosures[party]}
            for what, crossed in entries.items():
                assert (what in told) == crossed(made, party), (given, party, what)


def tensor(made: Any, receiver: str, name: str) -> bool:
    return any(
        isinstance(sent.message, training_pb2.Encrypted) and sent.message.tensor == name and sent.receiver == receiver
        for sent in made.transcript
    )


def test_figures_that_are_shared_are_listed(attempt: Any, shared: Any, logistic: Any) -> None:
    made = attempt(logistic(), Evaluate(test_fraction=0.25, share_with_passive=True))
    clinic, _ = made(shared(genuine=40, protocol="psi"))
    assert ("figures", 3) in counts(clinic.disclosures, "lab")
    assert "figures" not in {entry.what for entry in clinic.disclosures["clinic"]}


def test_texts_name_the_peer_and_the_mask_and_warn_where_rows_are_few(logistic: Any, attempt: Any) -> None:
    def text(what: str, party: str, rows: int | None, **given: Any) -> str:
        train = logistic(**given)
        numbers = Numbers(rows, 3, {"clinic": 4, "lab": 5}, 10)
        told = learns(attempt(train).parties, train, QUARTER, numbers)
        return next(entry.text for entry in told[party] if entry.what == what)

    assert "fewer than 20 shared rows a column" in text("gradient", "lab", 99)
    assert "fewer than 20" not in text("gradient", "lab", 100)
    assert "fewer than 20" not in text("gradient", "lab", None)
    assert "from 5 of them" in text("scores", "clinic", 99)
    assert "masked by noise 64 bits wider" in text("masked gradient", "clinic", 99)
    assert "an entry that is 0 shows" in text("masked gradient", "clinic", 99, mask="multiplicative")
    assert "cannot tell them from other values" in text("masked gradient", "hub", 99, flow="coordinator-open-scores")
    assert "the coordinator's key" in text("residuals", "lab", 99, flow="coordinator-open-scores")
    assert "99 shared rows, dummies included" in text("rounds", "hub", 99, flow="coordinator-open-scores")
    assert "shared rows" not in text("rounds", "hub", None, flow="coordinator-open-scores")
