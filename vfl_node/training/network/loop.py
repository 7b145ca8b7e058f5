"""The training loop of a network. All data parties run it in step: the same stages in the same order.

The whole loop::

    toss a seed jointly → schedule
    the active party names the held-out rows, if the job holds out the last ones (time_order.py; else the schedule draws them)
    for each repeat:  hold out test rows; draw new private weights
        for each epoch without labels, if the job has any:              (unaligned/pretraining.py)
            for each batch: H → , ← g; or z → , ← z; or nothing: this depends on the method
            a checkpoint at every party, if anything was sent
        for each epoch:  for each batch: H → , ← g, every party updates its weights    (the trainer's halves)
                         each party attacks its own outgoing messages
                         if there are validation rows:                  (stopping.py)
                             for each batch of them: H →
                             ← go on or stop
                         a checkpoint at every party
        go back to the weights of the best epoch, if there are validation rows
        for each batch of test rows: H →                                (evaluation)
    the active party sends the figures of the epochs and the metrics, if the job says so

Arrows: H → goes from each passive party to the active one; ← g comes back. Passive parties exchange nothing with each other.

Symbols: H are the embeddings of a batch, g is the gradient of the loss with respect to H, z are the projections of a batch.

An *attachment* of a half observes each step or adds to it; the audit is one (:mod:`vfl_node.privacy.attachment`).

Everything that a party draws comes from its own ``randomness``. With the same ``randomness`` and the same number of threads,
the result on a CPU has the same bits over any channel.

Source: Song et al. 2021 (FLORIST), sections 3 and 4. Deviation: a jointly tossed seed decides how the shared order is cut into
batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, VflError
from vfl_node.models import architecture_of
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, EpochJudged, EpochTrained, PhaseBegan
from vfl_node.session.session import Session, bytes_moved
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.half import NO_ROWS, ForwardPass, Half, Positions, RepeatStart
from vfl_node.training.network.journal import Journal, is_due, resume
from vfl_node.training.network.stopping import Stopping, decide
from vfl_node.training.schedule import Schedule, cut, toss_schedule
from vfl_node.training.time_order import agreed_parts
from vfl_node.training.trainer import Epoch, TrainingData
from vfl_node.training.unaligned.pretraining import Pretraining
from vfl_node.transport.pipe import Traffic

HalfOf = Callable[[Session, TrainingData, RepeatStart], Half]
"""Makes one party's half of the network for one repeat."""


@dataclass(frozen=True)
class Halves:
    """The two halves of the network that a trainer trains.

    Attributes:
        active: makes the active party's half.
        passive: makes a passive party's half.
        check_batch: called with the number of rows of a batch; raises UsageError (``E_SIZE``) if a message cannot hold them.
    """

    active: HalfOf
    passive: HalfOf
    check_batch: Callable[[int], None]


async def train(
    session: Session,
    data: TrainingData,
    checkpoints: Checkpoints,
    resume_from: str | None,
    traffic: Sequence[Traffic],
    halves: Halves,
    *,
    until: float | None = None,
) -> Journal:
    """Run the loop at this party; all data parties run it in step.

    Args:
        session: this party's session, with its channels to the peers.
        data: the rows that this party trains on.
        checkpoints: where this party's state is kept.
        resume_from: name of a checkpoint that all data parties hold, or None to begin.
        traffic: one counter for each peer; the bytes of each epoch are read from them.
        halves: the network to train.
        until: the epoch after which it stops if it does not end before, without having measured held-out rows; None: they are
            measured at the end.

    Raises:
        VflError: this party's or a peer's error.
    """
    section, evaluate = NetworkConfig.section_of(session.job), session.job.evaluate
    randomness, progress = session.randomness, session.progress
    schedule = await toss_schedule(session, len(data.alignment), section.seed)
    parts_of = await agreed_parts(session, data, schedule)
    parts = parts_of(0)
    training, testing, validation = parts
    if len(training) == 0:
        raise DataError(
            f"{len(data.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    halves.check_batch(min(section.batch_size, max(map(len, parts))))
    draws = randomness.derive("draws").bytes(32)
    synthetic = session.attempt.synthetic or draws
    trained, tested, validated = (-(-len(rows) // section.batch_size) for rows in parts)  # numbers of batches

    journal = resume(checkpoints, resume_from, schedule.fingerprint)
    journal.rows, journal.split = (len(training), len(testing)), schedule.split_seed
    journal.testing, journal.validated = testing, validation
    version = architecture_of(section.model, session.policy.models).version
    journal.shared = {"model_version": version, "draws": draws.hex(), "batches": schedule.derive("predictions").hex()}
    if synthetic != draws:
        journal.shared["synthetic"] = synthetic.hex()
    before = trained * section.exchanged_before
    all_epochs = before + section.epochs * (trained + validated)
    progress.emit(PhaseBegan("train", evaluate.repeats * (all_epochs + tested), "batches"))
    progress.emit(Advanced(journal.exchanges))

    half_of = halves.active if session.role == "active" else halves.passive
    for repeat in range(journal.repeat, evaluate.repeats):
        training, testing, validation = parts_of(repeat)
        own = randomness, Randomness(draws), repeat, training, journal.saved, validation, Randomness(synthetic)
        half = half_of(session, data, RepeatStart(*own))
        for attachment in half.attachments:
            attachment.follow_on(journal.so_far.get(attachment.carries, {}))
        if len(validation) and journal.stopping is None:
            journal.stopping = Stopping(section.patience, section.epochs)
        while (pretraining := half.pretraining) and journal.pretrained < pretraining.epochs:
            await _pretrain(session, half, pretraining, journal, schedule, training)
            if before and is_due(journal.pretrained, pretraining.epochs, trained):
                journal.save(checkpoints, half, schedule.fingerprint)
        with _count_if_broken_off(half):
            while not journal.is_over(section.epochs) and journal.epoch < (until or math.inf):
                batches = schedule.batches(repeat, journal.epoch, training, section.batch_size)
                await _epoch(session, half, journal, traffic, batches, cut(validation, section.batch_size))
                last = journal.epoch if journal.is_over(section.epochs) or journal.epoch == until else section.epochs
                if is_due(journal.epoch, last, trained):
                    _complete(session, half, journal)
                    journal.save(checkpoints, half, schedule.fingerprint)
            if until:
                for attachment in half.attachments:
                    attachment.break_off()
                return journal
            first = repeat * (all_epochs + tested)  # later batches keep their numbers if training stops early
            if left_out := first + all_epochs - journal.exchanges:
                progress.emit(Advanced(left_out))
            journal.exchanges = first + all_epochs
            best = None
            if journal.stopping:
                half.go_back(journal.best)
                epoch = journal.stopping.best
                number = first + before + epoch * (trained + validated) - validated
                best = ForwardPass(number, cut(validation, section.batch_size), epoch)
            failpoints.reach("evaluate")
            held_out = ForwardPass(journal.exchanges, cut(testing, section.batch_size), best.epoch if best else 0)
            journal.note_repeat(half, await half.evaluate(held_out, best))
            journal.exchanges += tested
            progress.emit(Advanced(tested))
    return journal


def _complete(session: Session, half: Half, journal: Journal) -> None:
    """Add to the journal the results of attachments that were still computing when the newest epoch ended."""
    late = {name: value for attachment in half.attachments for name, value in attachment.wait().items()}
    if late:
        session.progress.emit(EpochJudged(**late))
        journal.complete(late)


@contextmanager
def _count_if_broken_off(half: Half) -> Iterator[None]:
    """A context: if the block in it fails, the attachments count what the unfinished epoch has already sent."""
    try:
        yield
    except Exception:
        with suppress(OSError, VflError):  # an error here, such as a full disk, must not hide the first one, such as a cancel
            for attachment in half.attachments:
                attachment.break_off()
        raise


async def _pretrain(
    session: Session, half: Half, pretraining: Pretraining, journal: Journal, schedule: Schedule, training: Positions
) -> None:
    """Train one epoch without labels. After the last one only the weights of the bottoms are kept."""
    number = journal.pretrained
    if pretraining.exchanges:
        size = NetworkConfig.section_of(session.job).batch_size
        epoch = -1 - number  # below 0: epochs with labels are numbered from 0
        for positions in schedule.batches(journal.repeat, epoch, training, size):
            await pretraining.step(journal.exchanges, positions)
            journal.exchanges += 1
            session.progress.emit(Advanced(1))
    pretraining.end_epoch(number)
    if pretraining.exchanges:
        for attachment in half.attachments:
            attachment.epoch_without_labels_ends()
    failpoints.reach("pretrained")
    journal.pretrained += 1
    if journal.pretrained == pretraining.epochs:
        half.learner.forget()
        done = pretraining.end()
        if journal.repeat == 0 and done:
            journal.findings["unaligned"] = done


async def _epoch(
    session: Session,
    half: Half,
    journal: Journal,
    traffic: Sequence[Traffic],
    batches: Sequence[Positions],
    validation: Sequence[Positions],
) -> None:
    """Train one epoch. If there are ``validation`` rows, decide whether it is the best so far, and whether it is the last."""
    section, progress = NetworkConfig.section_of(session.job), session.progress
    started, moved = session.machine.clock(), bytes_moved(traffic)
    for attachment in half.attachments:
        attachment.epoch_begins(journal.epoch, len(batches))
    for index, positions in enumerate(batches):
        half.learner.pace(journal.epoch * len(batches) + index, section.epochs * len(batches))
        half.expect(batches[index + 1] if index + 1 < len(batches) else NO_ROWS)
        await half.step(journal.exchanges, positions)
        journal.exchanges += 1
        failpoints.reach("updated")
        progress.emit(Advanced(1))
    _complete(session, half, journal)
    found = {name: value for attachment in half.attachments for name, value in attachment.epoch_ends().items()}
    figures = half.figures()
    if journal.stopping:
        measured = await half.validate(ForwardPass(journal.exchanges, validation, journal.epoch + 1))
        journal.exchanges += len(validation)
        progress.emit(Advanced(len(validation)))
        figures = replace(figures, validation_loss=measured.validation_loss, validation_auc=measured.validation_auc)
        failpoints.reach("validated")
        if await decide(session, journal.stopping, measured.validation_loss):
            journal.best = half.weights()
    defended = half.defence_figures()
    seconds, moved = session.machine.clock() - started, bytes_moved(traffic) - moved
    number, repeat = journal.epoch + 1, journal.repeat + 1
    progress.emit(EpochTrained(**asdict(figures), **found, seconds=seconds, number=number, repeat=repeat))
    epoch = Epoch(
        seconds=seconds,
        bytes=moved,
        defence_seconds=defended.seconds,
        defences=defended.figures,
        **found,
        **asdict(figures),
    )
    journal.note_epoch(epoch, len(batches))
