"""What an estimate says of rows outside of the alignment, from which a job learns."""

from __future__ import annotations

import numpy as np
import pytest

from tests.estimate.plans import ONLY_POWERS, estimate, exact, plan, training
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.estimate import totals
from vfl_node.estimate.memory import need
from vfl_node.estimate.words import describe_alignment, describe_start, notes, table
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import Network, Operations, Passes, TableShape

PARTIES = {"clinic": 1000, "lab": 100}


def job(method: str, rest: str = "", evaluate: str = "test_fraction: 0.2", protocol: str = "psi") -> Job:
    train = f"bottom: [10, 4], active_bottom: [6], top: [5], batch_size: 50, epochs: 6, unaligned: {{method: {method}{rest}}}"
    return training(f"protocol: {protocol}", f"\ntrain: {{{train}}}\nevaluate: {{{evaluate}}}")


def passes(of: Job, shared: int = 60) -> list[Passes]:
    assert of.train is not None
    cost = of.train.make_plan().cost_outside(of.evaluate, shared, {"active": 1000, "passive": 100})
    assert cost is not None
    return list(cost.work)


BRANCH = Network(bottom=True, dense=(10, 5, 1))
BOTTOM = Network(bottom=True)
LOCAL = Passes("active", BRANCH, 3 * 940, 50)
OWN = Passes("active", BOTTOM, 48, 8192, learns=False)
SIAMESE = Network(bottom=True, dense=(6, 8, 8, 2, 8)), Network(bottom=True, dense=(4, 8, 8, 2, 8))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("heuristic", [LOCAL, OWN]),
        (
            "jpl, updates: 7, hidden: 9",
            [
                LOCAL,
                OWN,
                Passes("active", Network(bottom=True, dense=(6, 9, 4)), 7 * 256, 256),
                Passes("active", Network(bottom=False, dense=(10, 5, 1)), 7 * 256, 256),
                Passes("active", Network(bottom=True, dense=(6, 9, 4)), 940, 8192, learns=False),
            ],
        ),
        (
            "diffusion, updates: 7, hidden: 9, sampler_steps: 20",
            [
                LOCAL,
                OWN,
                Passes("active", Network(bottom=False, dense=(4 + 6 + 1 + 8, 9, 9, 4)), 7 * 256, 256),
                Passes("active", Network(bottom=False, dense=(19, 9, 9, 4)), 20 * (940 + 48), 4096, learns=False),
                Passes("active", BOTTOM, 940, 8192, learns=False),
            ],
        ),
        (
            "fedcvt, candidates: 30",
            [
                Passes("active", BRANCH, 5 * 940, 50),
                Passes("active", BOTTOM, 94 * 30, 30, learns=False),
                Passes("active", Network(bottom=False, dense=(6, 4, 30, 4)), 5 * 940 + 6 * 48, 50),
            ],
        ),
        (
            "ssl, pretrain_epochs: 3, projection: 8",
            [Passes("active", SIAMESE[0], 6 * (940 + 48), 50), Passes("passive", SIAMESE[1], 6 * (40 + 48), 50)],
        ),
        (
            "mpd, pretrain_epochs: 3, hidden: 8",
            [
                Passes("active", BOTTOM, 6 * 48, 50),
                Passes("active", Network(bottom=False, dense=(10, 8, 1)), 9 * 48, 50),
                Passes("passive", BOTTOM, 3 * 48, 50),
            ],
        ),
        (
            "fedhssl, pretrain_epochs: 3, projection: 8",
            [
                Passes("active", SIAMESE[0], 9 * (940 + 48), 50),
                Passes("passive", SIAMESE[1], 9 * (40 + 48), 50),
                Passes("active", SIAMESE[0], 3 * 48, 50),
                Passes("passive", SIAMESE[1], 3 * 48, 50),
            ],
        ),
    ],
)
def test_each_method_says_what_it_computes(method: str, expected: list[Passes]) -> None:
    assert passes(job(method)) == expected


def test_all_repeats_are_counted_and_every_step_of_ddpm() -> None:
    once, thrice = (passes(job("jpl", evaluate=f"test_fraction: 0.2, repeats: {count}")) for count in (1, 3))
    assert [of.rows for of in thrice] == [3 * of.rows for of in once]
    ddpm = passes(job("diffusion, sampler: ddpm, steps: 70"))[3]
    assert ddpm.rows == 70 * (940 + 48)


def a_second_each(work: Passes | Operations) -> float:
    return work.rows if isinstance(work, Passes) else work.count


def test_the_table_has_lines_for_rows_outside_where_a_job_learns_from_them() -> None:
    ssl = plan(job=job("ssl"), records=PARTIES, shared=(60, 60))
    found = totals.estimate(ssl, ONLY_POWERS, a_second_each)
    assert exact(found["psi"], "outside_rows") == 940
    assert exact(found["psi"], "outside_active_s") == 10 * (940 + 48)
    assert exact(found["psi"], "outside_passive_s") == 10 * (40 + 48)
    titles = ["unaligned rows, used in training", "  to compute, active party", "  to compute, passive party"]
    lines = {line[0]: line[1:] for line in table(ssl, found)}
    head = next(iter(lines.values()))
    assert len(head) == 3
    assert [lines[title] for title in titles] == [("–", "940", "–"), ("–", "2.7 h", "–"), ("–", "14.7 min", "–")]
    assert any("learnt from in 5 epochs before the 6 with labels" in note for note in notes(ssl, ONLY_POWERS))
    jpl = plan(job=job("jpl"), records=PARTIES, shared=(0, 100))
    open_ended = totals.estimate(jpl, ONLY_POWERS, a_second_each)["psi"]
    assert open_ended["outside_rows"] == (900, 1000)
    assert "outside_passive_s" not in open_ended
    assert any("learnt from in the last 3 of 6 epochs" in note for note in notes(jpl, ONLY_POWERS))


def test_a_job_without_a_method_has_none_of_it() -> None:
    unused = plan(job=training("protocol: psi"), records=PARTIES)
    assert not any(name.startswith("outside") for cost in estimate(unused).values() for name in cost)
    assert totals.pace_of(plan(records=PARTIES), TableShape(), None) is None
    assert not any("outside" in line for line in [*notes(unused, ONLY_POWERS), *describe_start(unused.job, PARTIES)])


def test_sentences_before_the_start_and_after_alignment() -> None:
    own, other = describe_start(job("jpl"), PARTIES, (60, 60))
    assert own.endswith(" in all, and beside them 940 rows of clinic alone, in the last 3 of 6 epochs")
    assert "beside" not in other
    assert "900 – 1,000 rows of clinic alone" in describe_start(job("jpl"), PARTIES)[0]
    assert "0 – 1,000 rows of clinic alone" in describe_start(job("jpl"), {"clinic": 1000})[0]
    assert not any("beside" in sentence for sentence in describe_start(job("jpl"), {"lab": 100}))

    def aligned(ours: int, **peers: PeerFacts) -> Alignment:
        return Alignment(ALIGNMENTS["psi"], "curve25519", np.arange(60), ours, peers)

    active = describe_alignment(job("jpl"), aligned(1000, lab=PeerFacts(100, intersection=60)))
    assert "and beside them 940 rows of clinic alone, in the last 3 of 6 epochs" in active
    assert describe_alignment(job("jpl"), aligned(100, clinic=PeerFacts(1000, intersection=60))) == active
    assert "beside" not in describe_alignment(job("jpl"), aligned(100, clinic=PeerFacts(1000, intersection=60, padded=True)))


def test_memory_of_what_is_filled_in() -> None:
    shape = TableShape(rows=1_000_000, numeric=3)
    none, jpl, ssl = (need(job(method), "active", shape) for method in ("none", "jpl", "ssl"))
    assert jpl.batch - none.batch == 1_000_000 * (6 * 4 + 4)
    assert jpl.model - none.model == 64 * ((10 * 5 + 5) + (5 + 1))
    assert (ssl.batch, ssl.model) == (none.batch, none.model)
    assert need(job("jpl"), "passive", shape) == need(job("none"), "passive", shape)


@pytest.mark.parametrize("shape", [TableShape(), TableShape(100, 3, (4, 200_000))])
def test_this_machine_is_measured(shape: TableShape) -> None:
    """Whatever a method says that it computes is timed, with and without a table."""
    planned = plan(job=job("fedcvt, candidates: 30"), records=PARTIES, shared=(60, 60))
    pace = totals.pace_of(planned, shape, None)
    assert pace is not None
    (local, candidates, attention) = passes(planned.job)
    assert min(pace(of) for of in (local, candidates, attention)) > 0
    assert pace(Passes("active", BRANCH, 2 * local.rows, 50)) == pytest.approx(2 * pace(local))
    assert pace(Passes("active", BRANCH, 0, 50)) == 0
