"""What the coordinator and the data parties see of each other: shapes, and uniform numbers."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import chi2

from tests.thorough import examples
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.settings.limits import Limits
from vfl_node.training.hidden.brought import Own
from vfl_node.training.hidden.inputs import digest_of
from vfl_node.training.hidden.terms import HiddenProgram
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.agreement import context_of
from vfl_node.transport.generated.vfl.v1.session_pb2 import PhaseEnd
from vfl_node.transport.generated.vfl.v1.shares_pb2 import (
    Corrections,
    CorrectionsUsed,
    DealerSeed,
    DealingTerms,
    MaskedShares,
    ShareContext,
    ShareInputs,
)

HUB = "hub"
MODELS = [{}, {"loss": "taylor"}, {"layers": (4,)}, {"task": "regression"}, {"classes": 3}, {"reveal": "none"}]
SOME = [({}, 2), ({"layers": (4,)}, 3), ({"classes": 3}, 2), ({"reveal": "none"}, 2)]
models = pytest.mark.parametrize(
    ("train", "parties"),
    [
        pytest.param(train, parties, marks=[] if (train, parties) in SOME else [pytest.mark.slow])
        for train in MODELS
        for parties in (2, 3)
    ],
)
"""Each model with two and with three data parties; all but some in make test-all."""

DIGEST = "vfl_node.training.hidden.trainer.digest_of"


def over_for(world: Any, train: dict[str, Any], *given: Any, **more: Any) -> Any:
    return world(*given, classes=train.get("classes", 2), numbers=train.get("task") == "regression", **more)


def alike(_own: Any, _mark: bytes) -> bytes:
    return bytes(32)


@models
def test_the_coordinator_sees_the_shape_of_the_job_and_nothing_else(
    world: Any, attempt: Any, train: dict[str, Any], parties: int
) -> None:
    """Other records, columns, labels and owners of the same shape: the same bytes, to it and from it, in one context."""
    seen = []
    for seed in (0, 1):
        over, of = over_for(world, train, parties, seed=seed), attempt(train)
        with mock.patch(DIGEST, alike):
            of(over)
        seen.append([(sent.sender, sent.receiver, sent.message) for sent in of.transcript if HUB in sent[:2]])
    assert seen[0] == seen[1]
    to_it = {type(message) for _, receiver, message in seen[0] if receiver == HUB}
    assert to_it == {DealingTerms, CorrectionsUsed, PhaseEnd}
    from_it = {type(message) for sender, _, message in seen[0] if sender == HUB}
    assert from_it == {DealerSeed, Corrections, PhaseEnd}


def test_of_the_data_it_has_one_digest(world: Any, attempt: Any) -> None:
    said = []
    for seed in (0, 1):
        of = attempt()
        of(world(seed=seed))
        said.append(of.sent(DealingTerms))
    assert len({of.SerializeToString() for of in said[0]}) == 1  # both parties say the same
    first, other = said[0][0], said[1][0]
    assert first.context != other.context
    other.context = first.context
    assert first == other


def test_its_digest_cannot_be_guessed_from_few_possible_tables(world: Any, attempt: Any) -> None:
    """A coordinator that knows everything but four labels tries all of them; without the parties' salts it finds them."""
    over = world(people=12)
    table, view = over.data["clinic"]
    at = np.flatnonzero(view.owned)[:4]
    found = {}
    for salted in (True, False):
        made: dict[bytes, Own] = {}

        def noted(own: Any, mark: bytes, made: Any = made, salted: bool = salted) -> bytes:
            digest = digest_of(own, mark if salted else bytes(32))
            made[digest] = own
            return digest

        of = attempt({"epochs": 1}, {"test_fraction": 0}, limits=Limits(least_rows=0))
        with mock.patch(DIGEST, noted):
            of(over)
        (said, *_), (context,) = of.sent(DealingTerms), of.sent(ShareContext)
        own, _others = made[context.digests[0]], list(context.digests[1:])
        fingerprint = Schedule(said.schedule, said.rows, 0).fingerprint
        hits = []
        for guess in product((0, 1), repeat=4):
            targets = own.targets.copy()
            targets[at, 0] = np.uint64(1 << 36) * np.array(guess, np.uint64)
            tried = digest_of(Own(own.columns, own.bits, targets), bytes(32))
            guessed = ShareContext()
            guessed.CopyFrom(context)
            guessed.digests[0] = tried
            if context_of(HiddenProgram(of.job(over)), guessed, fingerprint) == said.context:
                hits.append(guess)
        found[salted] = hits
    assert found == {True: [], False: [tuple(table.labels[view.rows[at]].astype(int))]}


def test_digests_are_salted_by_their_party_and_uniform(world: Any, attempt: Any) -> None:
    over, contexts, digests, jobs = world(people=20), [], [], examples(24, fewer=12)
    for number in range(jobs):
        of = attempt({"epochs": 1, "metrics_by": "none"}, secret=str(number))
        of(over)
        contexts.append(of.sent(DealingTerms)[0].context)
        digests += of.sent(ShareContext)[0].digests
    assert len(set(contexts)) == jobs
    assert len(set(digests)) == 2 * jobs
    for each in (contexts, digests):
        bits = np.unpackbits(np.frombuffer(b"".join(each), np.uint8))
        assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(bits))


def test_a_salt_lasts_for_the_job(world: Any, attempt: Any) -> None:
    over, of = world(), attempt()
    of(over)
    again = of.again(over, resume_from=None)
    again(over)
    assert of.sent(ShareInputs) == again.sent(ShareInputs)
    assert of.sent(DealingTerms) == again.sent(DealingTerms)


@models
def test_messages_between_data_parties_are_as_long_whatever_the_data_are(
    world: Any, attempt: Any, train: dict[str, Any], parties: int
) -> None:
    sizes = []
    for seed in (0, 1):
        of = attempt(train)
        of(over_for(world, train, parties, seed=seed))
        sizes.append([(sent.sender, sent.receiver, type(sent.message), sent.message.ByteSize()) for sent in of.transcript])
    assert sizes[0] == sizes[1]


def uniform(data: bytes) -> float:
    """The p-value of χ² over the 256 bytes."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    return float(chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 255))


@pytest.mark.parametrize("parties", [2, 3])
def test_what_data_parties_send_each_other_is_uniform(world: Any, attempt: Any, parties: int) -> None:
    train = {"loss": "taylor", "metrics_by": "none", "reveal": "none"}  # whose openings all have whole bytes
    of = attempt(train)
    of(world(parties))
    for sender, receiver in {sent[:2] for sent in of.transcript if isinstance(sent.message, MaskedShares)}:
        data = b"".join(each.values for each in of.sent(MaskedShares, sender, receiver))
        assert len(data) > 5000
        assert uniform(data) > 1e-4, (sender, receiver)
    draw = ShareMachine._draw
    unmasked = attempt(train)
    with mock.patch.object(ShareMachine, "_draw", lambda *given: 0 * draw(*given)):
        unmasked(world(parties))
    data = b"".join(each.values for each in unmasked.sent(MaskedShares, "lab", "clinic"))
    assert uniform(data) < 1e-30


def test_openings_do_not_depend_on_what_is_masked(world: Any, attempt: Any) -> None:
    """The first bits of what one party sends tell two tables no better apart than two draws for one table."""
    first = {}
    for seed, secret in product((0, 1), range(12)):
        train = {"epochs": 1, "loss": "taylor", "metrics_by": "none", "reveal": "none"}
        of = attempt(train, secret=str(secret), limits=Limits(least_rows=0))
        of(world(people=24, seed=seed))
        data = b"".join(each.values for each in of.sent(MaskedShares, "lab", "clinic"))
        first[seed, secret] = np.frombuffer(data, np.uint8) >> 7
    bits = np.array([[first[seed, secret] for secret in range(12)] for seed in (0, 1)], float)
    apart = bits[0].mean(axis=0) - bits[1].mean(axis=0)
    z = apart / np.sqrt(2 * 0.25 / 12)
    assert 0.85 < (z**2).mean() < 1.15


def test_a_digest_covers_columns_owners_targets_and_what_first_weights_are_drawn_from() -> None:
    one = np.ones((3, 1), np.uint64)
    own = Own(one, one, one)
    changed = [Own(2 * one, one, one), Own(one, 0 * one, one), Own(one, one, 3 * one)]
    digests = [digest_of(each, bytes(32)) for each in (own, *changed)] + [digest_of(own, b"\1" * 32)]
    assert len(set(digests)) == 5


@models
def test_a_place_has_one_mask_and_that_is_drawn_once(world: Any, attempt: Any, train: dict[str, Any], parties: int) -> None:
    """At each party; a value that is needed twice is opened once."""
    draw, drawn = ShareMachine._draw, list[Any]()

    def noted(machine: ShareMachine, seed: Any, number: int, name: str, shape: Any) -> Any:
        if machine.place >= 0:
            drawn.append((machine.place, machine.context, machine._section, number, name))
        return draw(machine, seed, number, name, shape)

    with mock.patch.object(ShareMachine, "_draw", noted):
        over, of = over_for(world, train, parties), attempt(train)
        of(over)
    assert len(drawn) == len(set(drawn)) > 50
    assert len({context for _, context, *_ in drawn}) == 1
    blocks = {f"epoch {epoch} block {block}" for epoch in range(3) for block in range(len(of.plan(over).batches(0)))}
    assert {section for *_, section, _, _ in drawn} == {"columns", "both 0", "both", "measure", *blocks}
