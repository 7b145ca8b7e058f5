"""What hides the shared records is drawn again when a set changes by one record: a partner that compares draws, and a limit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks.obfuscation import precision
from benchmarks.sessions import limits_from
from tests.alignment.conftest import IN_MEMORY
from tests.thorough import examples
from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.apsi.sizes import most_left
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.job import Predict
from vfl_node.node.partners import Partner, accept_loss
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.limits import Budgets
from vfl_node.transport.generated.vfl.v1 import alignment_pb2
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead

N_S, SHARED, M = 200, 20, 100
IDS = [b"%d" % i for i in range(N_S + 20)]
STRONG, WEAK = IDS[:N_S], IDS[N_S - SHARED :]  # 20 are shared
DEFAULT = limits_from(1)


def allowing(changes):
    return limits_from(1, budgets=Budgets(changes=changes))


class Jobs:
    """Jobs of a weak party, which remembers the strong one on a disk, with one that refuses nothing."""

    def __init__(self, run_alignment, folder, seed=0):
        self.run_alignment, self.count = run_alignment, 0
        weak = Partner(Path(folder), "lab", secret=bytes([seed, 1]) * 16)
        self.memories = [weak, MemoryOfOneRun(Randomness(bytes([seed, 2]) * 16))]

    def __call__(self, protocol="apsi", weak=WEAK, strong=STRONG, **how):
        self.count += 1
        if protocol == "apsi":
            how.setdefault("obfuscation", {"size": M})
        job_id = f"job-{self.count}"
        return self.run_alignment(protocol, weak, strong, memories=self.memories, job_id=job_id, seed=self.count, **how)


@pytest.fixture
def jobs(run_alignment):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Jobs(run_alignment, folder)


def gains(changes):
    return STRONG + [b"new %d" % i for i in range(changes)]


def test_a_partner_that_gains_one_record_four_times_reads_most_of_what_is_shared(run_alignment):
    """The control, the limit lifted: 20 of 100 are shared, and after five draws 20 of 23. Eight partners, in `make test` five.

    Of 180 others each is in all draws with probability q⁵ = .0173. So 3.12 are, of variance 3.07 at most, and their mean over
    eight has a standard error of at most .62, and over five of .78; the bound is four of these.
    """
    others, partners = [], examples(8, fewer=5)
    for seed in range(partners):
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            attack, common = Jobs(run_alignment, folder, seed), set(STRONG)
            for changes in range(5):
                own = gains(changes)
                run = attack(strong=own, limits=allowing(4))
                common &= {own[i] for i in run.passive.rows}
        assert set(WEAK) & set(STRONG) <= common
        others.append(len(common) - SHARED)
    expected = SHARED / precision(SHARED, M, N_S, 4) - SHARED
    assert sum(others) / partners == pytest.approx(expected, abs=4 * (3.07 / partners) ** 0.5)


@pytest.mark.parametrize(
    "changed",
    [{"strong": gains(1)}, {"strong": STRONG[1:]}, {"weak": [*WEAK, b"new"]}, {"weak": WEAK[1:]}],
    ids=["strong gains", "strong loses", "weak gains", "weak loses"],
)
def test_by_default_it_gets_one_draw(jobs, changed):
    first = jobs(limits=DEFAULT)
    assert len(first.passive) == M
    refused = jobs(limits=DEFAULT, **changed)
    assert (type(refused.active), refused.active.code) == (PolicyError, "E_BUDGET")
    assert refused.lists == {}
    assert sorted(jobs(limits=DEFAULT).passive.rows) == sorted(first.passive.rows)  # the first sets are welcome as ever
    assert isinstance(jobs(limits=allowing(1), **changed).active, Alignment)


@pytest.mark.parametrize("hiding", [("apsi", {}), ("psu", {"dummies": 3})], ids=["apsi", "dummies"])
@pytest.mark.parametrize("telling", ["psi", "psu"])
def test_a_promise_that_lapses_by_one_record_is_a_change(jobs, hiding, telling):
    """The partner waits until a record is added, and submits a job that hides nothing: it is refused before any size leaves."""
    protocol, how = hiding
    jobs(protocol, limits=DEFAULT, **how)
    assert jobs(telling, limits=DEFAULT).active.code == "E_PROMISE"
    changed = {"weak": [*WEAK, b"a new one"], "strong": gains(1)}  # its own too, which it promised to hide under dummies
    refused = jobs(telling, **changed, limits=DEFAULT)
    assert refused.active.code == "E_BUDGET"
    assert not any(isinstance(message, alignment_pb2.SetSize) for message in refused.spies[0].messages)
    # The control, and what the owner allows by it: all is told.
    told = jobs(telling, **changed, limits=allowing(1)).passive
    assert told.peer.intersection == SHARED
    assert jobs(telling, weak=WEAK[1:], strong=gains(2), limits=allowing(1)).active.code == "E_BUDGET"


@pytest.mark.parametrize("telling", ["apsi", "psi"])
def test_another_table_of_the_owner_has_a_count_of_its_own(jobs, telling):
    """By its name: the partner, which has one table only, neither begins a new count of the first one nor blocks the other."""
    other = [b"other %d" % i for i in range(30)] + WEAK[:10]
    jobs(limits=DEFAULT)
    assert isinstance(jobs(telling, weak=other, table="other", limits=DEFAULT).active, Alignment)
    for table, code in (("default", "E_BUDGET"), ("other", "E_BUDGET" if telling == "apsi" else None)):
        run = jobs("psi", weak=other[1:], strong=gains(1), table=table, limits=DEFAULT)
        assert getattr(run.active, "code", None) == code


def test_where_nothing_was_hidden_no_change_counts(jobs):
    for changes in range(3):
        assert isinstance(jobs("psi", strong=gains(changes), limits=DEFAULT).active, Alignment)
    assert isinstance(jobs(limits=DEFAULT).active, Alignment)  # the first that hides


def test_new_records_for_which_the_owner_asks_count_only_where_another_asks(jobs):
    jobs(limits=DEFAULT)
    new = [b"new %d" % i for i in range(30)]
    theirs, ours = (Predict(model="a" * 26, to=to, rows="new") for to in ("passive", "active"))
    assert jobs("psi", weak=new, predict=theirs, limits=DEFAULT).active.code == "E_BUDGET"
    assert isinstance(jobs("psi", weak=new, predict=ours, limits=DEFAULT).active, Alignment)


def test_an_accepted_loss_is_a_change_of_what_hides_alone(jobs):
    weak = jobs.memories[0]
    with pytest.raises(Exception, match="has seen entry 60"):
        weak.heads("job", {}).prove(LedgerHead(entries=60, link=b"l" * 32))
    accept_loss(weak)
    for changes in range(2):
        assert isinstance(jobs("psi", strong=gains(changes), limits=DEFAULT).active, Alignment)
    assert jobs(limits=DEFAULT).active.code == "E_BUDGET"


def test_the_ledger_says_which_draw_it_is_and_what_draws_have_in_common(jobs):
    for changes in range(3):
        run = jobs(strong=gains(changes), limits=allowing(2))
        assert run.active.peer.learnt == run.passive.learnt
    text = run.passive.learnt[1].text
    assert "(draw 3)" in text
    assert "at most about 24.5 % of the others" in text
    assert "(draw 1)" in jobs(limits=allowing(2)).passive.learnt[1].text  # the first sets have the first draw


def test_the_ledger_says_which_draw_of_dummies_it_is(jobs):
    for changes in range(3):
        run = jobs("psu", strong=gains(changes), dummies=3, limits=allowing(2))
    text = run.active.learnt[-1].text
    assert text.startswith("roughly how many records are shared, by draw 3 of dummies: ")
    assert text.endswith("; so many draws over almost the same sets leave about 50 % of these sizes")


@pytest.mark.parametrize(("m", "n_s", "shared"), [(100, 200, 20), (100, 200, 99), (40, 200, 20), (200, 200, 20)])
def test_what_is_left_is_never_more_than_the_ledger_says(m, n_s, shared):
    for changes in range(5):
        left = (shared / precision(shared, m, n_s, changes) - shared) / (m - shared)
        assert left <= most_left(m, n_s, changes + 1) + 1e-12
