"""Two data parties check some of what the coordinator deals: ``train.dealer_audit``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pydantic import ValidationError

from tests.thorough import THOROUGH, every, examples
from tests.training.hidden.conftest import weights_of
from tests.training.shares_attempts import HUB, KilledError, assert_same, kills
from vfl_node.crypto.shares.audit import SectionAudit
from vfl_node.crypto.shares.machine import Dealer, Party
from vfl_node.errors import ProtocolError, StateError
from vfl_node.session import share_wire as wire
from vfl_node.session.openings import OpeningLog
from vfl_node.settings.limits import Limits
from vfl_node.training.hidden.costs import exchange
from vfl_node.training.hidden.held import block, candidates
from vfl_node.training.hidden.memory import CANDIDATES
from vfl_node.training.shares import agreement
from vfl_node.transport.generated.vfl.v1.shares_pb2 import Corrections, CorrectionsUsed, DealerSeed, MaskedShares, SectionSeed

AUDIT = {"dealer_audit": 0.4, "epochs": 3, "batch_size": 12}
DIGEST = "vfl_node.training.hidden.trainer.digest_of"
MODELS: list[tuple[dict[str, Any], float]] = [
    ({}, 1e-4),
    ({"loss": "taylor"}, 1e-4),
    ({"task": "regression", "learning_rate": 0.1}, 1e-4),
    ({"classes": 3}, 1e-4),
    ({"layers": (4, 3)}, 1e-3),
]


def over_for(world: Any, train: dict[str, Any], **more: Any) -> Any:
    return world(classes=train.get("classes", 2), numbers=train.get("task") == "regression", **more)


def blocks(of: Any, over: Any) -> list[str]:
    plan = of.plan(over)
    return [block(epoch, number) for epoch in range(plan.epochs) for number in range(len(plan.batches(0)))]


@pytest.mark.parametrize(("model", "protocol"), every(3, list(product(MODELS, ["psu", "apsi"]))), ids=str)
def test_weights_are_those_of_plaintext_on_the_batches_that_are_not_checked(
    world: Any, attempt: Any, model: tuple[dict[str, Any], float], protocol: str
) -> None:
    train, error = model
    over, of = over_for(world, train, protocol=protocol), attempt(AUDIT | train)
    results = of(over)
    pairs = zip(weights_of(results), of.reference(over), strict=True)
    assert max(float(np.abs(ours - plain).max()) for ours, plain in pairs) < error
    checked = [section for section in blocks(of, over) if of.coins(over).shows(section)]
    assert 0 < len(checked) < len(blocks(of, over))
    for each in results:
        assert (each.section.audited, each.steps) == (len(checked), len(blocks(of, over)) - len(checked))
    plan = of.plan(over)
    said = exchange(
        *(plan.form, plan.bins, plan.reveals, plan.told, True, False),
        rows=plan.rows,
        batch=plan.batch_rows,
        steps=results[0].steps,
        tested=len(plan.testing),
        checks=len(checked),
    )
    assert [each.section.bytes for each in results] == [said.active, said.passive]
    assert results[0].section.rounds == said.rounds
    assert sum(each.section.dealer_bytes for each in results) == said.dealt
    assert len(of.sent(SectionSeed, "lab")) == len(checked) + len(candidates(audits=True)) - 1


@contextmanager
def spoilt(section: str, receiver: int, at: int = 0) -> Iterator[list[int]]:
    """A coordinator that changes one number of a section for one party: the list has how many blocks of numbers it has."""
    deal, dealt = Dealer._deal, list[int]()

    class Spoils:
        def __init__(self, sink: Any) -> None:
            self.sink = sink

        async def put(self, corrections: np.ndarray) -> None:
            if len(dealt) == at:
                corrections = corrections.copy()
                corrections[len(corrections) // 2] ^= np.uint64(1 << 40)
            dealt.append(len(corrections))
            await self.sink.put(corrections)

    async def tampers(self: Any, number: int, operation: Any) -> Any:
        if type(self) is not Dealer or (self._section, self._own) != (section, receiver):
            return await deal(self, number, operation)
        true, self._sink = self._sink, Spoils(self._sink)
        try:
            return await deal(self, number, operation)
        finally:
            self._sink = true

    with mock.patch.object(Dealer, "_deal", tampers):
        yield dealt


@pytest.mark.parametrize(("train", "receiver"), every(3, list(product([of for of, _ in MODELS], [0, 1]))), ids=str)
def test_every_block_of_numbers_is_checked_in_sections_that_are_and_in_no_other(
    world: Any, attempt: Any, train: dict[str, Any], receiver: int
) -> None:
    unmeasured = AUDIT | train | {"metrics_by": "none"}
    over, of = over_for(world, train, people=40), attempt(unmeasured)
    whole, coins = of(over), of.coins(over)
    for shown in (True, False):
        section = next(each for each in blocks(of, over) if coins.shows(each) == shown)
        at, count, changed = 0, 1, False
        while at < count:
            with spoilt(section, receiver, at) as dealt:
                results = attempt(unmeasured).raw(over)
            count, at = max(count, len(dealt)), at + (1 if THOROUGH else 3)
            found = results[receiver]
            if shown:
                assert isinstance(found, ProtocolError), at
                assert found.code == "E_DEALER"
                assert "of epoch" in found.message
                assert all(isinstance(each, Exception) for each in results)
            else:
                assert not any(isinstance(each, Exception) for each in results)
                pairs = zip(results[:2], whole, strict=True)
                changed |= any(bool((a.weights["weight"] != b.weights["weight"]).any()) for a, b in pairs)
        assert count > 1
        assert changed != shown  # a wrong model, and no error


def test_products_of_ownership_bits_are_checked(world: Any, attempt: Any) -> None:
    over, of = world(people=40), attempt(AUDIT)
    of(over)
    for section in candidates(audits=True):
        with spoilt(section, 1) as dealt:
            results = attempt(AUDIT).raw(over)
        assert dealt == [len(over)]
        assert isinstance(results[1], ProtocolError) == (section != of.coins(over).used)
        assert not isinstance(results[1], ProtocolError) or "the bits of who is shared" in results[1].message


def test_one_spoilt_block_of_many_jobs_is_noticed_as_often_as_is_said(world: Any, attempt: Any) -> None:
    over, train, noticed = world(people=24), AUDIT | {"epochs": 1, "metrics_by": "none"}, 0
    whole: dict[str, Any] = {"limits": Limits(least_rows=0)}
    jobs = examples(60, fewer=36)
    for secret in range(jobs):
        with spoilt(block(0, 0), secret % 2):
            results = attempt(train, secret=str(secret), **whole).raw(over)
        noticed += isinstance(results[secret % 2], ProtocolError)
    assert abs(noticed - 0.4 * jobs) < 3.2 * (jobs * 0.4 * 0.6) ** 0.5  # of 36, 14.4 ± 2.9


def test_the_coordinator_does_not_know_what_is_checked(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data parties' coins change: what they say of its numbers, and when, does not; and what it sends is as long."""
    monkeypatch.setattr(wire, "CHUNK_BYTES", 1 << 13)
    monkeypatch.setattr(wire, "_REPORTED", 1 << 8)
    sent = []
    for secret in ("one", "other"):
        of, over = attempt(AUDIT), world()
        true = of.randomness
        of.randomness = lambda name, true=true, secret=secret: Tosses(true(name), secret)
        of(over)
        of_dealer = [[each for each in of.transcript if HUB in each[:2] and name in each[:2]] for name in over.data]
        told = [
            (each.sender, getattr(each.message, "count", 0), len(getattr(each.message, "values", b"")))
            for conversation in of_dealer
            for each in conversation
            if isinstance(each.message, Corrections | CorrectionsUsed)
        ]
        assert sum(count > 0 for _, count, _ in told) > 20
        sent.append((told, [len(each.values) for each in of.sent(Corrections)], len(of.sent(SectionSeed))))
    assert sent[0][:2] == sent[1][:2]
    assert sent[0][2] != sent[1][2]


class Tosses:
    """A party's randomness, with other coins."""

    def __init__(self, true: Any, secret: str) -> None:
        self._true, self._secret = true, secret

    def derive(self, label: str) -> Any:
        return self._true.derive(label + self._secret if label == "toss of the audit" else label)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._true, name)


def test_what_a_check_shows_is_the_same_whatever_the_data_are(world: Any, attempt: Any) -> None:
    seen = []
    for seed in (0, 1):
        of = attempt(AUDIT)
        with mock.patch(DIGEST, return_value=bytes(32)):
            of(world(seed=seed))
        seen.append(
            [(each.sender, each.message) for each in of.transcript if isinstance(each.message, SectionSeed | Corrections)]
        )
    assert seen[0] == seen[1]
    assert len({message.seed for _, message in seen[0] if isinstance(message, SectionSeed)}) > 30  # and no seed comes twice


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[tuple[str, str]]]:
    """Context and section of all that parties use, and of all that they show."""
    found: dict[str, set[tuple[str, str]]] = {"used": set(), "shown": set()}
    run, auditor = Party._round, Party.auditor

    async def used(self: Any, numbered: Any) -> Any:
        found["used"].add((self.context, self._section))
        return await run(self, numbered)

    async def shown(self: Any, count: int) -> Any:
        made = await auditor(self, count)
        if made:
            found["shown"].add((self.context, self._section))
        return made

    monkeypatch.setattr(Party, "_round", used)
    monkeypatch.setattr(Party, "auditor", shown)
    return found


@pytest.mark.usefixtures("small_messages")
@pytest.mark.parametrize("victim", [pytest.param("clinic", marks=pytest.mark.slow), "lab", "hub"])
def test_killed_before_any_message_no_section_is_both_shown_and_used(
    world: Any, attempt: Any, sections: dict[str, set[tuple[str, str]]], victim: str
) -> None:
    over, train = world(people=40), AUDIT | {"epochs": 2, "layers": (3,), "metrics_by": "none"}
    uncut = attempt(train)
    whole = uncut(over)
    kinds = [(kind, name) for kind in (MaskedShares, SectionSeed) for name in over.data]
    sent = {of: {each.SerializeToString() for each in uncut.sent(*of)} for of in kinds}
    for at in every(9, range(sum(entry.sender == victim for entry in uncut.transcript))):
        first = attempt(train, tamper=kills(victim, at))
        assert any(isinstance(result, KilledError) for result in first.raw(over))
        second = first.again(over)
        assert_same(second(over), whole)
        assert second.coins(over).digest == uncut.coins(over).digest
        for of, messages in sent.items():
            assert {each.SerializeToString() for each in first.sent(*of) + second.sent(*of)} <= messages
    assert not sections["used"] & sections["shown"]
    assert len(sections["shown"]) > 15


def test_other_coins_are_another_context(world: Any, attempt: Any, sections: dict[str, set[tuple[str, str]]]) -> None:
    """As if both data parties had lost all they knew of an earlier attempt. With one context, sections shown would be used."""
    for bound in (True, False):
        for of in sections.values():
            of.clear()
        true = agreement.context_of
        fixed = lambda *given, true=true: true(*given[:3])  # noqa: E731
        with mock.patch.object(agreement, "context_of", true if bound else fixed):
            for secret in ("one", "other"):
                of = attempt(AUDIT)
                randomness = of.randomness
                of.randomness = lambda name, true=randomness, secret=secret: Tosses(true(name), secret)
                of(world())
        assert bool(sections["used"] & sections["shown"]) != bound


def test_the_coordinator_is_held_to_what_it_dealt_before(world: Any, attempt: Any) -> None:
    """Else one that has seen by the pace which sections are used would change these after a restart."""
    over, of = world(), attempt(AUDIT)
    of(over)
    used = next(section for section in blocks(of, over) if not of.coins(over).shows(section))
    for held in (True, False):
        first = attempt(AUDIT)
        first(over)
        with spoilt(used, 0), mock.patch.object(OpeningLog, "check"):
            if held:
                with pytest.raises(ProtocolError, match="other numbers than in an earlier attempt") as caught:
                    first.again(over, resume_from=None)(over)
                assert caught.value.code == "E_DEALER"
            else:
                with mock.patch.object(OpeningLog, "hold"):
                    first.again(over, resume_from=None)(over)


def test_the_coordinator_has_the_same_masks_in_all_attempts(world: Any, attempt: Any) -> None:
    over, first = world(), attempt(AUDIT)
    first(over)
    again = first.again(over)
    true = again.randomness
    again.randomness = lambda name: true(name).derive("lost") if name == "hub" else true(name)
    with pytest.raises(StateError, match="masks of hub") as caught:
        again(over)
    assert caught.value.code == "E_REPLAY"


def test_all_of_a_section_has_come_before_anything_of_it_is_sent(world: Any, attempt: Any) -> None:
    """A coordinator that sends the last numbers of a section later sees no difference: in none has a party gone on."""
    over, of, went = world(people=40), attempt(AUDIT), list[tuple[int, bool]]()
    auditor = SectionAudit.auditor

    async def noted(self: Any, section: str, seed: bytes, corrections: Any, count: int) -> Any:
        made = await auditor(self, section, seed, corrections, count)
        went.append((self._place, corrections._count >= count))
        return made

    gather, gathered = SectionAudit.gather, list[int]()

    async def all_here(self: Any, section: str, corrections: Any, count: int) -> None:
        await gather(self, section, corrections, count)
        if section == "columns":
            assert not went
            gathered.append(count)

    with mock.patch.object(SectionAudit, "auditor", noted), mock.patch.object(SectionAudit, "gather", all_here):
        of(over)
    assert all(here for _, here in went)
    assert sorted(gathered) == [0, CANDIDATES * len(over)]  # before the first of all products of bits
    assert len(went) == 2 * (len(blocks(of, over)) + 16)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_seed_of_another_size(world: Any, attempt: Any, size: int) -> None:
    def cut(sent: Any) -> None:
        if isinstance(sent.message, SectionSeed) and sent.sender == "lab":
            sent.message.seed = bytes(size)

    with pytest.raises(ProtocolError) as caught:
        attempt(AUDIT, tamper=cut)(world())
    assert caught.value.code == "E_COUNT"


def test_another_seed_is_no_seed_of_the_section(world: Any, attempt: Any) -> None:
    def other(sent: Any) -> None:
        if isinstance(sent.message, SectionSeed | DealerSeed) and sent.receiver == "clinic":
            sent.message.seed = bytes(32)

    results = attempt(AUDIT, tamper=other).raw(world())
    assert any(isinstance(of, ProtocolError) and of.code == "E_DEALER" for of in results)


@pytest.mark.parametrize("share", [-0.1, 0.6, float("nan")])
def test_at_most_half_is_checked(world: Any, attempt: Any, share: float) -> None:
    with pytest.raises(ValidationError):
        attempt({"dealer_audit": share}).job(world())


def test_several_passive_parties_cannot_check(world: Any, attempt: Any) -> None:
    with pytest.raises(ValidationError, match="dealer_audit must be 0 with several passive parties"):
        attempt(AUDIT).job(world(3))


def test_a_training_that_checks_every_batch_says_so(world: Any, attempt: Any) -> None:
    over, train = world(people=24), {"dealer_audit": 0.5, "epochs": 1, "metrics_by": "none"}
    for secret in range(30):
        of = attempt(train, secret=str(secret), limits=Limits(least_rows=0))
        result, passive = of(over)
        assert len(blocks(of, over)) == 1
        nothing = result.section.audited == 1
        assert any("chose every batch" in said for said in result.warnings) == nothing
        if nothing:
            for found, first in zip(weights_of((result, passive)), of.start(over), strict=True):
                np.testing.assert_allclose(found, first, atol=1e-7)
            break
    else:
        raise AssertionError
