"""A data party's part in training trees in shares.

::

    toss a seed → which shared rows are held out
    numbers of candidates and digests to the active party, and the context of all masks back
    shapes to the coordinator, the seed of this party's masks back
    the computation (computation.py), with a checkpoint after each tree
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.shares.cells import bytes_of_cells
from vfl_node.crypto.shares.masked import slots_of
from vfl_node.crypto.shares.ring import Ring
from vfl_node.errors import UsageError
from vfl_node.process import failpoints
from vfl_node.progress import ResultDoubted
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.training import own_columns
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares import agreement
from vfl_node.training.shares.agreement import Brought
from vfl_node.training.shares.attempt import DealtParty, ShareSteps, meet_dealer
from vfl_node.training.shares.dealing import Dealing
from vfl_node.training.shares.kept import make_servable, to_tensors
from vfl_node.training.shares.privacy import privacy_of
from vfl_node.training.shares.results import count_beyond, measure, warnings
from vfl_node.training.summary import Population, Summary
from vfl_node.training.trainer import Coordination, Trained, Trainer, TrainingData
from vfl_node.training.trees.computation import Grown, Positions, TreesOutcome, TreesTraining, compute, first_scores
from vfl_node.training.trees.config import MOST_CANDIDATES, MOST_ROWS, Trees
from vfl_node.training.trees.disclosures import learns
from vfl_node.training.trees.inputs import TreeInputs, digest_of, prepare
from vfl_node.training.trees.kept import join_shares, list_shares
from vfl_node.training.trees.program import TreesProgram
from vfl_node.training.trees.section import OwnSplit, TreesSection
from vfl_node.transport.pipe import Traffic

NO_CANDIDATES = "they have no candidate with {least:,} records on each side (train.least_rows, least_rows), or are lists"


class TreesTrainer(Trainer):
    """Trees in shares, as a `Trainer`."""

    def prepare(self, session: Session) -> None:
        """As the base: sines must be those of all machines, and splits leave as many records as each owner wants.

        Raises:
            PolicyError: the job asks for fewer records on a side than this owner allows (``E_POLICY``).
        """
        agreement.check_tables()
        if session.role != "coordinator":
            asked = Trees.section_of(session.job).least_rows
            agreement.check_least_rows(session, "train.least_rows", asked, "on each side of a split")

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Train with the other data parties, and with the dealer's randomness.

        Raises:
            DataError: see :func:`vfl_node.training.trees.inputs.prepare`; a chance of one in 10¹¹ (``E_CHANCE``).
            ProtocolError: a message of another size, or contexts that differ.
            StateError: a checkpoint is damaged or of another schedule; a passive party has other inputs than in an earlier
                attempt (``E_REPLAY``); there is no memory for all candidates (``E_MEMORY``).

        Cost: see docs/guides/train-trees.md; every operation counts its own rounds and bytes.

        Leaks: see :mod:`vfl_node.training.trees.disclosures`.
        """
        assert session.coordinator is not None  # the job was checked
        async with session.phase("train") as traffic, session.coordinator.phase("deal"):
            return await _TreesAttempt(session, data, checkpoints).train(resume, traffic)

    def coordination(self, session: Session) -> Coordination:
        """The coordinator deals."""
        return Dealing(session, TreesProgram(session.job))


class _TreesAttempt:
    """One attempt of one data party."""

    def __init__(self, session: Session, data: TrainingData, checkpoints: Checkpoints) -> None:
        self._session, self._data, self._checkpoints = session, data, checkpoints
        self._train, self._parties = Trees.section_of(session.job), session.job.parties
        self._place = self._parties.data.index(session.name)
        self._program = TreesProgram(session.job)

    async def train(self, resume: str | None, traffic: Sequence[Traffic]) -> Trained:
        session, rows = self._session, len(self._data.alignment)
        seed = await toss(session, session.randomness.derive("toss"))
        schedule = Schedule(seed, rows, self._train.seed, session.attempt.split)
        training, testing = schedule.split(0, session.job.evaluate.test_fraction)
        inputs = prepare(session, self._data, training, testing)
        salt = session.randomness.derive("mark of inputs").bytes(agreement.DIGEST_BYTES)
        own = Brought(inputs.own.candidates.width, digest_of(inputs.own, salt), rows, float(rows), schedule.fingerprint)
        _check_size(rows, own.width)
        context = await agreement.agree(session, self._program, own)
        _check_size(rows, sum(context.widths))
        agreement.check_room(session, rows, context.widths, self._program.party_bytes(rows, context.widths, rows))
        steps = ShareSteps(session, self._checkpoints, schedule.fingerprint, context.context, "tree")
        start = _from_tensors(steps.resume(resume), self._train.depth)
        said = agreement.make_terms(session, self._program, context, rows, seed, len(steps.done))
        plan = self._program.plan(said)

        async def finish_tree(number: int, grown: Grown) -> None:
            steps.finish(_to_tensors(grown))

        async with meet_dealer(session, said) as met:
            steps.begin(met.log, plan.plan.trees, traffic)
            outcome = await compute(met.party, plan, inputs.own, start, len(steps.done), finish_tree)
        shares = self._shares(inputs, outcome)
        servable = await make_servable(session, schedule, context.widths, inputs.scale, shares)
        failpoints.reach("evaluate")
        section = self._section(plan, inputs, outcome, met)
        result = self._result(plan, inputs, outcome, section, testing)
        split = schedule.split_seed if session.job.evaluate.test_fraction else b""
        return replace(result, epochs=tuple(steps.done), servable=servable, split=split)

    @staticmethod
    def _shares(inputs: TreeInputs, outcome: TreesOutcome) -> tuple[Ring, ...]:
        """This party's shares of the model, as they are kept."""
        return list_shares(first_scores(1, inputs.own.begin)[:, 0], outcome.grown.trees)

    def _section(self, plan: TreesTraining, inputs: TreeInputs, outcome: TreesOutcome, met: DealtParty) -> TreesSection:
        session, shapes = self._session, plan.plan
        splits = tuple(
            OwnSplit(
                tree=tree // shapes.outputs + 1,
                label=tree % shapes.outputs if shapes.outputs > 1 else None,
                node=node + 1,
                split=inputs.columns.describe(int(candidate)),
            )
            for tree, nodes in enumerate(outcome.splits)
            for node, candidate in enumerate(nodes)
            if candidate >= 0 and inputs.columns.columns
        )
        return TreesSection(
            trees=shapes.trees,
            depth=shapes.depth,
            bins=self._train.bins,
            rounds=met.wire.rounds,
            bytes=met.wire.sent,
            dealer_bytes=met.corrections.received,
            cells=shapes.rows * shapes.width,
            slots=slots_of(shapes.rows),
            once_bytes=bytes_of_cells(shapes.rows, shapes.widths)[self._place],
            beyond=count_beyond(outcome.tallies),
            privacy=privacy_of(
                session.job,
                self._data.spent,
                self._data.spent.limit or session.policy.limits.budgets.epsilon,
                columns=max(shapes.widths),
                records=len(plan.training),
                trainings=self._data.number,
                noise_of_counts=plan.metric_noise.counts if len(plan.testing) else None,
            ),
            columns=dict(zip(self._parties.data, shapes.widths, strict=True)),
            dropped=inputs.dropped,
            splits=splits,
            gains={each.name: gain for each, gain in zip(inputs.columns.columns, outcome.gains.tolist(), strict=False)},
            leaves=tuple(tuple(leaves) for leaves in outcome.leaves.tolist()),
        )

    def _result(
        self, plan: TreesTraining, inputs: TreeInputs, outcome: TreesOutcome, section: TreesSection, testing: Positions
    ) -> Trained:
        session, data, shapes = self._session, self._data, plan.plan
        found = measure(session.job, outcome.tallies, inputs.scale, inputs.spread)
        least = max(self._train.least_rows, session.policy.limits.least_rows)
        doubts = own_columns.drop_warnings(list(inputs.dropped), NO_CANDIDATES.format(least=least))
        doubts += warnings(session.job, data.alignment.common, outcome.tallies, found)
        for text in doubts:
            session.progress.emit(ResultDoubted(text))
        count = outcome.tallies[0].rows if outcome.tallies else None
        common = None if count is None else Population("common", count, 1.0 if count else None)
        return Trained(
            epochs=(),
            steps=shapes.trees,
            rows=(len(plan.training), len(testing)),
            device="cpu",
            disclosures=learns(
                session.job,
                shapes.rows,
                shapes.widths,
                counted=count,
                number=data.number,
                privacy=section.privacy.text if section.privacy else "",
            ),
            section=section,
            warnings=doubts,
            weights=to_tensors(self._shares(inputs, outcome)),
            encoder=inputs.columns.to_json(),
            columns=inputs.columns.encoded(data.table),
            results=Summary(found.values, found.intervals, population=common),
            held_out=testing if session.job.evaluate.test_fraction else np.empty(0, np.int64),
        )


def _check_size(rows: int, width: int) -> None:
    """Refuse more rows or candidates than numbers have bits for. Raises UsageError (``E_SIZE``)."""
    if rows > MOST_ROWS or width > MOST_CANDIDATES:
        what = f"{rows:,} shared rows" if rows > MOST_ROWS else f"{width:,} candidates for splits"
        raise UsageError(
            f"trees in shares take {MOST_ROWS:,} rows and {MOST_CANDIDATES:,} candidates at most, not {what}",
            code="E_SIZE",
            hint="say a smaller train.bins, leave columns out, or let fewer records take part (align.at_most)",
            for_peer="its trees would have too many rows or candidates for splits",
        )


def _to_tensors(grown: Grown) -> dict[str, Tensor]:
    """What a checkpoint has."""
    shares = to_tensors(list_shares(np.zeros(1, np.uint64), grown.trees))
    return {"scores": _tensor(grown.scores), "gains": _tensor(grown.gains), **shares}


def _from_tensors(tensors: Mapping[str, Tensor] | None, depth: int) -> Grown | None:
    if tensors is None:
        return None
    shares = [_ring(tensors[f"share {index}"]) for index in range(depth + 2)]
    return Grown(_ring(tensors["scores"]), _ring(tensors["gains"]), tuple(join_shares(shares, depth)[1]))


def _tensor(part: Ring) -> Tensor:
    return torch.from_numpy(part.view(np.int64).copy())


def _ring(tensor: Tensor) -> Ring:
    return tensor.numpy().view(np.uint64)
