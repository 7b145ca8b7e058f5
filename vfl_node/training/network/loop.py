"""How the halves of a network are trained and measured: what all data parties walk through in step.

The whole of it::

    toss a seed → schedule
    the active party names the rows held out, if these are the last ones          (time_order.py; else the schedule draws them)
    for each repeat:  hold out test rows; new private weights
        for each epoch without labels, if the job has some:             (unaligned/pretraining.py)
            for each batch: H → , ← g, or z → , ← z, or nothing
            a checkpoint at all, if there was something
        for each epoch:  for each batch: H → , ← g, all update         (the trainer's halves)
                         each attacks what it sent
                         for each batch of validation rows: H → ;  ← go on or stop    (stopping.py; if there are such rows)
                         a checkpoint at all
        the weights of the best epoch, if there are validation rows
        for each batch of test rows: H →                               (evaluation)
    the active party tells the epochs' figures and metrics, if the job says so

H → and ← g: of every passive party with the active one. Passive parties exchange nothing with each other.

Symbols: m shared rows, B rows a batch, d width of the cut layer, H embedding, g gradient, z projection.
Everything a party draws comes from its own ``randomness``; with the same one, and the same
number of threads, the result has the same bits over any channel (on a CPU).

Source: Song et al. 2021 (FLORIST), sections 3 and 4. Deviation: batches are cut from the
shared order by a jointly tossed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, VflError
from vfl_node.models import architecture_of
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, EpochJudged, EpochTrained, PhaseBegan
from vfl_node.session.session import Session, bytes_moved
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.half import ForwardPass, Half, Positions, RepeatStart
from vfl_node.training.network.journal import Journal, is_due, resume
from vfl_node.training.network.stopping import Stopping, decide
from vfl_node.training.schedule import Schedule, cut
from vfl_node.training.time_order import agreed_parts
from vfl_node.training.trainer import Epoch, TrainingData
from vfl_node.training.unaligned.pretraining import Pretraining
from vfl_node.transport.pipe import Traffic

HalfOf = Callable[[Session, TrainingData, RepeatStart], Half]
"""Makes one party's half of a repeat."""


@dataclass(frozen=True)
class Halves:
    """The kind of network that a trainer trains.

    Attributes:
        active: makes the active party's half.
        passive: makes a passive party's.
        check_batch: refuses batches of so many rows that one message cannot hold. Raises UsageError (``E_SIZE``).
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
) -> Journal:
    """The loop that all data parties walk through in step.

    Args:
        session: whom this party meets.
        data: what it trains on.
        checkpoints: where its state is kept.
        resume_from: name of a checkpoint that all of them hold, or None to begin.
        traffic: of the phase with each peer, which counts the bytes of each epoch.
        halves: what is trained.

    Raises:
        VflError: this party's or a peer's error.
    """
    section, evaluate = NetworkConfig.section_of(session.job), session.job.evaluate
    randomness, progress = session.randomness, session.progress
    seed = await toss(session, randomness.derive("toss"))
    schedule = Schedule(seed, len(data.alignment), section.seed)
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
    trained, tested, validated = (-(-len(rows) // section.batch_size) for rows in parts)  # batches

    journal = resume(checkpoints, resume_from, schedule.fingerprint)
    journal.rows = len(training), len(testing)
    journal.testing, journal.validated = testing, validation
    version = architecture_of(section.model, session.policy.models).version
    journal.shared = {"model_version": version, "draws": draws.hex(), "batches": schedule.derive("predictions").hex()}
    before = trained * section.exchanged_before
    all_epochs = before + section.epochs * (trained + validated)
    progress.emit(PhaseBegan("train", evaluate.repeats * (all_epochs + tested), "batches"))
    progress.emit(Advanced(journal.exchanges))

    half_of = halves.active if session.role == "active" else halves.passive
    for repeat in range(journal.repeat, evaluate.repeats):
        training, testing, validation = parts_of(repeat)
        half = half_of(session, data, RepeatStart(randomness, Randomness(draws), repeat, training, journal.saved, validation))
        for attachment in half.attachments:
            attachment.follow_on(journal.so_far.get(attachment.carries, {}))
        if len(validation) and journal.stopping is None:
            journal.stopping = Stopping(section.patience, section.epochs)
        while (pretraining := half.pretraining) and journal.pretrained < pretraining.epochs:
            await _pretrain(session, half, pretraining, journal, schedule, training)
            if before and is_due(journal.pretrained, pretraining.epochs, trained):
                journal.save(checkpoints, half, schedule.fingerprint)
        with _count_if_broken_off(half):
            while not journal.is_over(section.epochs):
                batches = schedule.batches(repeat, journal.epoch, training, section.batch_size)
                await _epoch(session, half, journal, traffic, batches, cut(validation, section.batch_size))
                last = journal.epoch if journal.is_over(section.epochs) else section.epochs
                if is_due(journal.epoch, last, trained):
                    _complete(session, half, journal)
                    journal.save(checkpoints, half, schedule.fingerprint)
            first = repeat * (all_epochs + tested)  # batches have the same numbers wherever training stops
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
    """Note what was still being found when the newest epoch ended."""
    late = {name: value for attachment in half.attachments for name, value in attachment.wait().items()}
    if late:
        session.progress.emit(EpochJudged(**late))
        journal.complete(late)


@contextmanager
def _count_if_broken_off(half: Half) -> Iterator[None]:
    """If this block fails, the attachments count what the unfinished epoch has already sent."""
    try:
        yield
    except Exception:
        with suppress(OSError, VflError):  # a full disk or lost state must not hide the first error, such as a cancel
            for attachment in half.attachments:
                attachment.break_off()
        raise


async def _pretrain(
    session: Session, half: Half, pretraining: Pretraining, journal: Journal, schedule: Schedule, training: Positions
) -> None:
    """Train one epoch without labels; the last one leaves nothing of it but the bottoms' weights."""
    number = journal.pretrained
    if pretraining.exchanges:
        size = NetworkConfig.section_of(session.job).batch_size
        for positions in schedule.batches(journal.repeat, -1 - number, training, size):  # those of other epochs are 0 or more
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
    """Train one epoch, and decide by the ``validation`` rows whether it is the best so far and the last; if there are any."""
    section, progress = NetworkConfig.section_of(session.job), session.progress
    started, moved = session.machine.clock(), bytes_moved(traffic)
    for attachment in half.attachments:
        attachment.epoch_begins(journal.epoch, len(batches))
    for index, positions in enumerate(batches):
        half.learner.pace(journal.epoch * len(batches) + index, section.epochs * len(batches))
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
