"""A data party's part in training trees in shares.

::

    toss a seed → which shared rows are held out
    numbers of candidates and digests to the active party, and the context of all masks back
    shapes to the coordinator, the seed of this party's masks back
    the computation (computation.py), with a checkpoint after each tree
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Party
from vfl_node.crypto.shares.ring import Ring
from vfl_node.errors import PolicyError, ProtocolError, UsageError
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan, ResultDoubted
from vfl_node.session.openings import OpeningLog
from vfl_node.session.session import Session, bytes_moved
from vfl_node.session.share_wire import DealtCorrections, PairWire, StarWire
from vfl_node.session.toss import toss
from vfl_node.training import own_columns
from vfl_node.training.checkpoints import Checkpoints, load_of
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares import agreement
from vfl_node.training.shares.agreement import Brought
from vfl_node.training.shares.dealing import Dealing
from vfl_node.training.shares.kept import make_servable, to_tensors
from vfl_node.training.shares.privacy import privacy_of
from vfl_node.training.shares.results import measure, warnings
from vfl_node.training.summary import Population, Summary
from vfl_node.training.trainer import Coordination, Epoch, Trained, Trainer, TrainingData
from vfl_node.training.trees.computation import Grown, Positions, TreesOutcome, TreesTraining, compute, first_scores
from vfl_node.training.trees.config import MOST_CANDIDATES, MOST_ROWS, Trees
from vfl_node.training.trees.disclosures import learns
from vfl_node.training.trees.inputs import TreeInputs, digest_of, prepare
from vfl_node.training.trees.kept import join_shares, list_shares
from vfl_node.training.trees.program import TreesProgram
from vfl_node.training.trees.section import OwnSplit, TreesSection
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealerSeed, DealingTerms
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
        if session.role == "coordinator":
            return
        asked, least = Trees.section_of(session.job).least_rows, session.policy.limits.least_rows
        if asked < least:
            raise PolicyError(
                f"train.least_rows is {asked}, and this node wants {least} records on each side of a split (least_rows)",
                code="E_POLICY",
                hint=f"the job can say train.least_rows: {least}",
                for_peer=f"it wants train.least_rows: {least} or more",
            )

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
        self._epochs: list[Epoch] = []

    async def train(self, resume: str | None, traffic: Sequence[Traffic]) -> Trained:
        session, rows = self._session, len(self._data.alignment)
        seed = await toss(session, session.randomness.derive("toss"))
        schedule = Schedule(seed, rows, self._train.seed)
        training, testing = schedule.split(0, session.job.evaluate.test_fraction)
        inputs = prepare(session, self._data, training, testing)
        salt = session.randomness.derive("mark of inputs").bytes(agreement.DIGEST_BYTES)
        own = Brought(inputs.own.candidates.width, digest_of(inputs.own, salt), rows, float(rows), schedule.fingerprint)
        _check_size(rows, own.width)
        context = await agreement.agree(session, self._program, own)
        _check_size(rows, sum(context.widths))
        agreement.check_room(session, rows, context.widths, self._program.party_bytes(rows, context.widths, rows))
        start, first = self._begin(context.context, resume, schedule.fingerprint)
        said = DealingTerms(
            rows=rows,
            widths=context.widths,
            context=context.context,
            schedule=seed,
            batch_rows=rows,
            divisor=rows,
            epoch=first,
        )
        plan, dealer = self._program.plan(said), session.coordinator
        assert dealer is not None
        await dealer.send(said)
        masks = (await dealer.receive(DealerSeed)).seed
        if len(masks) != agreement.DIGEST_BYTES:
            raise ProtocolError(f"{dealer.peer} sent a seed of {len(masks)} bytes", code="E_COUNT")
        session.attempt.pins.check(
            f"masks of {dealer.peer}", hashlib.sha256(masks).digest()
        )  # which shares of a checkpoint fit
        channels = list(session.data_peers.values())
        wire = PairWire(self._place, channels[0]) if len(self._parties.data) == 2 else StarWire(self._place, channels)
        corrections = DealtCorrections(dealer)
        log = OpeningLog(session.attempt.folder / "openings", hashlib.sha256(context.context + masks).digest())
        try:
            mask_seed, context_hex = Randomness(masks), context.context.hex()
            party = Party(self._place, len(self._parties.data), mask_seed, wire, corrections, context_hex, log.check)
            outcome = await self._compute(party, plan, inputs, start, first, schedule.fingerprint, traffic, log)
        finally:
            log.close()
        await corrections.finish()
        shares = self._shares(inputs, outcome)
        servable = await make_servable(session, schedule, context.widths, inputs.scale, shares)
        failpoints.reach("evaluate")
        section = self._section(plan, inputs, outcome, wire, corrections)
        return replace(self._result(plan, inputs, outcome, section, testing), servable=servable)

    async def _compute(
        self,
        party: Party,
        plan: TreesTraining,
        inputs: TreeInputs,
        start: Grown | None,
        first: int,
        schedule: str,
        traffic: Sequence[Traffic],
        log: OpeningLog,
    ) -> TreesOutcome:
        """The computation from tree ``first`` on, with a checkpoint after each tree."""
        session, count = self._session, plan.plan.trees
        session.progress.emit(PhaseBegan("train", count, "trees"))
        session.progress.emit(Advanced(first))
        began, moved = session.machine.clock(), bytes_moved(traffic)

        async def finish_tree(number: int, grown: Grown) -> None:
            nonlocal began, moved
            self._epochs.append(Epoch(None, None, session.machine.clock() - began, bytes_moved(traffic) - moved))
            failpoints.reach("updated")
            log.keep()
            if number + 1 == count:
                self._hold(party.context)
            self._save(number, grown, party.context, schedule)
            session.progress.emit(Advanced(1))
            began, moved = session.machine.clock(), bytes_moved(traffic)

        if first == count:
            self._hold(party.context)
        return await compute(party, plan, inputs.own, start, first, finish_tree)

    @staticmethod
    def _shares(inputs: TreeInputs, outcome: TreesOutcome) -> tuple[Ring, ...]:
        """This party's shares of the model, as they are kept."""
        return list_shares(first_scores(1, inputs.own), outcome.grown.trees)

    def _hold(self, context: str) -> None:
        """What is opened from here on is opened under one context: under another one, noise would be drawn a second time.

        Raises:
            StateError: it was another one in an earlier attempt, as before an update of the software (``E_REPLAY``).
        """
        self._session.attempt.pins.check("context of what is opened", bytes.fromhex(context))

    def _begin(self, context: bytes, resume: str | None, schedule: str) -> tuple[Grown | None, int]:
        """This party's shares and the tree to begin with."""
        checkpoint = load_of(self._checkpoints, resume, schedule) if resume else None
        if checkpoint is None or checkpoint.meta["context"] != context.hex():  # everybody's is another one: all begin anew
            self._checkpoints.clear()  # which would be agreed upon later, as names are the same
            return None, 0
        self._epochs = [Epoch(loss=None, auc=None, **figures) for figures in checkpoint.meta["epochs"]]
        return _from_tensors(checkpoint.tensors, self._train.depth), len(self._epochs)

    def _save(self, number: int, grown: Grown, context: str, schedule: str) -> None:
        figures = [{"seconds": each.seconds, "bytes": each.bytes} for each in self._epochs]
        meta = {"schedule": schedule, "context": context, "epochs": figures}
        self._checkpoints.save(
            f"tree-{number + 1:06}",
            {"scores": _tensor(grown.scores), **to_tensors(list_shares(np.zeros(1, np.uint64), grown.trees))},
            meta,
        )

    def _section(
        self,
        plan: TreesTraining,
        inputs: TreeInputs,
        outcome: TreesOutcome,
        wire: PairWire | StarWire,
        corrections: DealtCorrections,
    ) -> TreesSection:
        session, shapes = self._session, plan.plan
        splits = tuple(
            OwnSplit(tree=tree + 1, node=node + 1, split=inputs.columns.describe(int(candidate)))
            for tree, nodes in enumerate(outcome.splits)
            for node, candidate in enumerate(nodes)
            if candidate >= 0 and inputs.columns.columns
        )
        return TreesSection(
            trees=shapes.trees,
            depth=shapes.depth,
            rounds=wire.rounds,
            bytes=wire.sent,
            dealer_bytes=corrections.received,
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
            epochs=tuple(self._epochs),
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


def _from_tensors(tensors: Mapping[str, Tensor], depth: int) -> Grown:
    """What a checkpoint has."""
    shares = [_ring(tensors[f"share {index}"]) for index in range(depth + 2)]
    return Grown(_ring(tensors["scores"]), tuple(join_shares(shares, depth)[1]))


def _tensor(part: Ring) -> Tensor:
    return torch.from_numpy(part.view(np.int64).copy())


def _ring(tensor: Tensor) -> Ring:
    return tensor.numpy().view(np.uint64)
