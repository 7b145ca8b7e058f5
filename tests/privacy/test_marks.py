"""A partner that compares jobs: under one mark with another set in each, and by changes that are counted.

The attacker is the passive party. It owns some records and guesses others, and wants to know which of its guesses the
active party has too. It adds one guess to its set in each job and looks at how the size of the intersection changes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sessions import limits_from, session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.lists import promises
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.protocols import align
from vfl_node.crypto.groups import SafePrimeGroup
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.threads import Threads
from vfl_node.errors import PolicyError, ProtocolError
from vfl_node.job import Align
from vfl_node.node.partners import Partner
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.limits import Budgets, Limits
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import alignment_pb2
from vfl_node.transport.memory import memory_channels, run_together

PRIME = 2**80 - 5837
WORKERS = Threads(2)
DUMMIES = 10
VICTIMS = [b"victim %d" % i for i in range(60)]
GUESSES = [*VICTIMS[:30], *(b"stranger %d" % i for i in range(30))]
"""Of which the first half are the victim's, too."""

OWN = [b"own %d" % i for i in range(20)]


class SameMark(Channel):
    """An attacker's conversation, in which its set has the mark of the first one whatever it is."""

    mark = b""

    async def send(self, message: Any) -> None:
        if isinstance(message, alignment_pb2.Remembered):
            SameMark.mark = SameMark.mark or message.mark
            message.mark = SameMark.mark
        await super().send(message)


class OneNumber(Randomness):
    """The attacker's own, whose k it knows: the same for all sets, so that only the victim's hides anything."""

    def derive(self, label: str) -> Randomness:
        return super().derive("dummies" if label.startswith("dummies ") else label)


class Attack:
    """Jobs of a victim, which remembers its partner on a disk, with an attacker whose set changes."""

    def __init__(self, folder: Path, limits: Limits, *, same_mark: bool) -> None:
        self.limits, self.same_mark, self.jobs = limits, same_mark, 0
        self.folder, self.victim = folder, Partner(folder, "lab")
        self.attacker = MemoryOfOneRun(OneNumber(b"a" * 32))
        SameMark.mark = b""

    def job(self, guesses: list[bytes], named: str = "curve25519") -> tuple[Any, Any]:
        """Both results of a job in which the attacker has added ``guesses``, in a group that the job calls ``named``."""
        self.jobs += 1
        ends = memory_channels("clinic", "lab", job_id=f"job-{self.jobs}")
        if self.same_mark:
            ends = (ends[0], SameMark(ends[1]._pipe, peer="clinic", job_id=ends[1].job_id))
        sides = []
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            lenient = limits_from(1, budgets=Budgets(alignments=None, changes=None))
            for name, channel, memory, limits, ids in (
                ("clinic", ends[0], self.victim, self.limits, VICTIMS),
                ("lab", ends[1], self.attacker, lenient, OWN + guesses),
            ):
                own = session(
                    name,
                    {channel.peer: channel},
                    Randomness(f"{name} {self.jobs}".encode().ljust(32)),
                    align=Align.model_validate({"dummies": DUMMIES, "group": named}),
                    folder=Path(scratch, name),
                    memories={channel.peer: memory},
                    workers=WORKERS,
                    limits=limits,
                )
                group = SafePrimeGroup(named, PRIME)
                sides.append((align(own, OwnRecords(Identifiers.from_items(ids)), group=group), channel))
            active, passive = run_together(*sides)
        return active, passive

    def memberships(self) -> tuple[list[bool], Any]:
        """For one guess after another whether the size grew by it, and the victim's last word, where it ended the attack."""
        told: list[bool] = []
        before = 0
        for number in range(len(GUESSES) + 1):
            victim, attacker = self.job(GUESSES[:number])
            if not isinstance(attacker, Alignment):
                return told, victim
            without = len(attacker) - number  # the union grows by a guess that is not shared
            told += [without < before] if number else []
            before = without
        return told, None


@pytest.fixture
def folder() -> Any:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as made:
        yield Path(made)


ALL = limits_from(1, budgets=Budgets(alignments=1))


def test_one_mark_for_every_set_told_every_membership_and_was_never_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: on the peer's word alone k stays as it is and the limits see one pair of sets; 60 of 60."""
    monkeypatch.setattr(Lists, "_first_of_this_mark", lambda self, name, digest: digest)
    attack = Attack(folder, ALL, same_mark=True)
    assert attack.memberships()[0] == [guess in VICTIMS for guess in GUESSES]


def test_a_mark_is_held_to_its_list(folder: Path) -> None:
    attack = Attack(folder, ALL, same_mark=True)
    told, victim = attack.memberships()
    assert told == []  # there was one job, and nothing to compare it with
    assert isinstance(victim, ProtocolError)
    assert victim.code == "E_MARK"
    assert isinstance(attack.job([])[0], Alignment)  # the set of that mark is welcome as ever


def test_a_mark_is_held_to_its_list_in_every_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of two groups cannot be compared: another set, of strangers alone, would show k, and so |I|."""
    attack = Attack(folder, limits_from(1, budgets=Budgets(alignments=2)), same_mark=True)
    first, _ = attack.job(GUESSES)
    refused, _ = attack.job(GUESSES[30:], "modp3072")
    assert (type(refused), refused.code) == (PolicyError, "E_PROMISE")
    assert "align.group" in refused.message

    monkeypatch.setattr(promises, "hold", lambda *args, **kwargs: None)  # the control: no promise is kept
    other, _ = attack.job(GUESSES[30:], "modp3072")
    size, strangers = (len(VICTIMS) + len(OWN) + n + 4 * DUMMIES - len(of) for n, of in ((60, first), (30, other)))
    assert size - strangers == 30


def test_true_marks_are_counted_as_changes(folder: Path) -> None:
    attack = Attack(folder, limits_from(1, budgets=Budgets(changes=4)), same_mark=False)
    told, victim = attack.memberships()
    assert len(told) == 4
    assert isinstance(victim, PolicyError)
    assert "sets have changed 4 times" in victim.message
    assert isinstance(attack.job(GUESSES[:2])[0], Alignment)  # a pair of earlier on is free
    assert attack.job(GUESSES[:7])[0].code == "E_BUDGET"


def test_each_change_narrows_the_window_as_documented() -> None:
    """|I| + k is seen after each of c changes: what is left of D + 1 sizes is 2/(c + 2) of them; a tenth after 19."""
    draws = np.random.default_rng(0).integers(0, 1001, size=(20_000, 20))
    for changes, left in ((0, 1.0), (2, 0.5), (4, 1 / 3), (19, 2 / 21)):
        seen = draws[:, : changes + 1]
        window = 1001 - np.ptp(seen, axis=1)
        assert window.mean() / 1001 == pytest.approx(left, abs=0.01)
