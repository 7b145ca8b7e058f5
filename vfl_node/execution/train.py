"""How a data party runs a job that aligns, and then trains if the job has a ``train`` section."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.errors import PolicyError
from vfl_node.estimate.memory import check_steps
from vfl_node.estimate.words import describe_alignment
from vfl_node.execution import cautions, column_cautions
from vfl_node.execution.align import Aligned, align_or_load, recall_synthetic, settle_reuse
from vfl_node.execution.drifted import drift_cautions
from vfl_node.execution.finish import finish
from vfl_node.execution.halves import check_exportable, hand_over
from vfl_node.execution.inputs import check_named_columns
from vfl_node.execution.joint import estimate_joint
from vfl_node.execution.keep import NO_HALVES, keep, traffic_of
from vfl_node.execution.outcome import JobOutcome
from vfl_node.execution.reuse import check_evidence
from vfl_node.execution.run import ALIGNED, KEPT, Run, agree_point
from vfl_node.execution.sweep import SweepTrials, trial_name
from vfl_node.gdp import Exposure
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.names import AUTO
from vfl_node.job.training import TrainerConfig
from vfl_node.privacy.attack_limit import check_limit, strongest
from vfl_node.privacy.defences.idle import idle_defences, idle_feature_audit, idle_label_limit
from vfl_node.process.machine import utc_now
from vfl_node.process.tensors import device_name
from vfl_node.progress import ResultDoubted, TrainingCostKnown
from vfl_node.roles import DataRole, Role
from vfl_node.session.counted import Counted, clear_training, telling_training, telling_training_of_set
from vfl_node.session.spent import SCALED, Expense, Spent
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.predictor import predictor_of
from vfl_node.training.section import JointAttack
from vfl_node.training.table_use import table_use_of
from vfl_node.training.trainer import Trained, Trainer, TrainingData, trainer_of


async def play(run: Run) -> None:
    """Run the job to its end. Report and model are then in ``artefacts`` of the run's folder.

    Raises:
        VflError: this party's or a peer's error.

    Leaks: what the job's alignment and training leak. The report states it in words.
    """
    folder, started = run.folder, utc_now()
    if not folder.whole:
        _reserve(run)
    checkpoints = FileCheckpoints(folder.checkpoints)
    job = run.session.job
    trials = job.sweep and SweepTrials(folder)
    has_aligned = folder.load_alignment(run.session.others) is not None
    points = [ALIGNED, *(trials.points() if trials else checkpoints.names())] if has_aligned else []
    if folder.whole:
        points.append(KEPT)
    point = await agree_point(run, points)
    if point is None and job.align.reuse == AUTO:
        run = await settle_reuse(run)
    if point != KEPT:
        trainer = _prepare(run)
        result = await align_or_load(run, resume=point is not None)
        trained, halves = None, NO_HALVES
        if trainer:
            trained = await _train(run, trainer, result, trials or checkpoints, None if point == ALIGNED else point)
            if run.session.job.export:
                trained, halves = await hand_over(run, trained)
        keep(run, started, traffic_of(run.session, result), aligned=result, trained=trained, halves=halves)
    await finish(run)


def _prepare(run: Run) -> Trainer | None:
    """The job's trainer, after checks that it can run here; None for a job that only aligns. Raises VflError if it cannot."""
    session, train = run.session, run.session.job.train
    if train is None:
        return None
    check_evidence(session, run.folder)
    trainer = trainer_of(train)
    if session.job.serve:
        predictor_of(train)  # refuses a job whose model could be kept but not used for predictions
    trainer.prepare(session)
    role: DataRole = "active" if session.role == "active" else "passive"
    table_use_of(train, session.policy.models).check(role, run.data.table)
    if session.job.export:
        check_exportable(run)
    check_named_columns(run.data.table, session.policy.protection, party=session.name, role=session.role, train=train)
    return trainer


def _reserve(run: Run) -> None:
    """Set aside what the training of this job will count and spend, before the job's first message.

    So no job aligns for a training that another job has left no room for. Nobody knows yet whether any row will be synthetic.
    This assumes that some row may be.

    Raises:
        PolicyError: it would be more than this owner allows (``E_BUDGET``).

    Leaks: a refusal shows roughly how much this owner allows. Whether a job is refused depends only on jobs and settings,
    never on the contents of a record.
    """
    anew = _draws_anew(run, synthetic=bool(run.session.job.align.spec.synthetic_rows_at))
    counts, expense = (_training_counts(run) if anew else []) + _clear_counts(run), _expense(run)
    if counts or expense:
        run.session.memory.reserve(run.session.attempt.job_id, counts, [expense] if expense else [])


def _spend(run: Run) -> Spent:
    """Count the differential privacy (μ) that this training spends, and return what was spent over its table in all.

    It is counted before the training's first message. So it stays counted even if the training fails.

    Raises: as :func:`_reserve`.
    """
    expense = _expense(run)
    return run.session.memory.spend(expense) if expense else Spent()


def _expense(run: Run) -> Expense | None:
    """What this job's training spends; None if it opens nothing."""
    session, train = run.session, run.session.job.train
    opens = train.opens(session.job.evaluate) if train else Exposure()
    if not (opens.mu or opens.unbounded):
        return None
    about = ALIGNMENTS.lasting(session.job.align.protocol) + ("" if opens.labels else SCALED)
    limit = session.policy.limits.budgets.epsilon
    return Expense(run.data.name, session.attempt.job_id, opens.mu, opens.unbounded, limit, about)


async def _train(
    run: Run, trainer: Trainer, result: Aligned, kept: SweepTrials | FileCheckpoints, resume: str | None
) -> Trained:
    session, job, alignment = run.session, run.session.job, result.alignment
    assert job.train is not None
    if result.doubt:
        # may stop the job, but only if all parties know how many records are shared; it comes before the training is counted
        result.doubt.check()
    number, spent = _number(run, alignment), _spend(run)
    _check_enough(run, result)
    check_steps(job, len(alignment), session.policy.limits)
    if takes := describe_alignment(job, alignment):
        session.progress.emit(TrainingCostKnown(takes))
    _check_settings(run, job.train)
    if session.recording.transcript and session.role == "active":
        session.recording.transcript.keep_rows(alignment.rows)
    before, joint = _cautions(run, alignment), _estimate_joint(run)
    attempt = dataclasses.replace(session.attempt, synthetic=recall_synthetic(run))
    own = dataclasses.replace(session, randomness=session.randomness.derive("train"), attempt=attempt)
    data = TrainingData(alignment, run.data.table, number, spent, run.data.name, run.data.whole)
    if isinstance(kept, SweepTrials):
        trained = await kept.run(own, data, trainer, resume)
    else:
        trained = await trainer.run(own, data, kept, resume)
    trained = dataclasses.replace(trained, audits=dataclasses.replace(trained.audits, joint=joint))
    protection, defended = session.policy.protection, job.train.traits.defended
    idle = (
        *idle_defences(protection.defences, session.role, defended, "training"),
        *idle_feature_audit(protection.features, session.role, defended, "training"),
        *idle_label_limit(protection, session.role, trained.audits.labels),
    )
    after = column_cautions.encoding_cautions(trained.columns, before)
    if results := trained.results:
        after += cautions.result_cautions(results.confusion, results.metrics.get("accuracy"))
    after += cautions.membership_cautions(joint) if joint else ()
    if results and run.data.table.labels is not None:
        after += cautions.model_cautions(results, held_out=job.evaluate.test_fraction > 0)
    for text in after:
        session.progress.emit(ResultDoubted(text))
    own_warnings = (
        *before,
        *_drift(run, alignment),
        *after,
        *trained.warnings,
        *idle,
        *missing_results(job, session.role, trained),
    )
    return dataclasses.replace(trained, warnings=own_warnings)


def _estimate_joint(run: Run) -> JointAttack | None:
    """The estimate of the joint attack from this party's own columns; None at an active party, and if there is no estimate.

    It is None in a trial, too, which runs the attack itself at its end.

    Raises:
        PolicyError: the estimate is above the limit of this party's owner (``E_LEAK``; the peer gets ``E_STOPPED``). At
            this point nothing of the training has been sent yet.
    """
    session, protection = run.session, run.session.policy.protection
    if session.role != "passive" or session.recording.received is not None:
        return None
    found = estimate_joint(session.job, run.data.table, protection, session.policy.models)
    if found:
        check_limit(
            session.name, strongest({"joint": found.value}), protection.max_attack_auc, where="an estimate, before training"
        )
    return found


def _cautions(run: Run, alignment: Alignment) -> tuple[str, ...]:
    """Log warnings that are known before training, such as too few rows, and return them for this party's report."""
    session, table = run.session, run.data.table
    texts = column_cautions.table_cautions(table) + column_cautions.total_cautions(table)
    texts += column_cautions.column_cautions(table)
    if table.labels is not None:
        rows = cautions.row_cautions(int(np.count_nonzero(alignment.owned)), session.job.evaluate)
        texts += (*cautions.label_cautions(table, session.job.classes), *rows)
    for text in texts:
        session.progress.emit(ResultDoubted(text))
    return texts


def _drift(run: Run, alignment: Alignment) -> tuple[str, ...]:
    """Warnings of own columns that have moved since the model was trained that the job goes on from, if it does."""
    job_id = getattr(run.session.job.train, "start_from", None)
    if job_id is None:
        return ()
    own = run.data.table.take(alignment.rows[alignment.owned])
    return drift_cautions(JobOutcome(run.folder.path.parent / job_id).columns, job_id, own)


def missing_results(job: Job, role: Role, trained: Trained) -> tuple[str, ...]:
    """Warnings about results that the job asks for and that the trainer did not give to the party in ``role``."""
    assert job.train is not None
    warnings = []
    if job.serve and trained.servable is None:
        warnings.append("Nothing was kept for predictions (serve): this training gave nothing to predict with.")
    if job.evaluate.matched and role == job.train.label_holder and not trained.section.counts_matched_rows:
        warnings.append("Nothing was measured on the rows that both parties own (evaluate.matched).")
    return tuple(warnings)


def _check_settings(run: Run, train: TrainerConfig) -> None:
    """Refuse to resume a job under settings that differ from those at its beginning and would change its result.

    Raises:
        StateError: the device differs (``E_DEVICE``), or the defences or the audited columns do (``E_DEFENCES``).
    """
    if train.traits.on_device:
        device = device_name(run.session.machine.device)
        text = f"this node computes on {device}, and the job began on another device"
        run.folder.check_setting("device", device, text=text, code="E_DEVICE")
    if train.traits.defended:
        defences = [params.model_dump(mode="json", context=LASTING_NAMES) for params in run.session.policy.protection.defences]
        text = "the job began with other defences than those in this node's settings"
        run.folder.check_setting("defences", json.dumps(defences), text=text, code="E_DEFENCES")
        features = run.session.policy.protection.features
        text = "the job began with another audit.features than that in this node's settings"
        audited = json.dumps(features.model_dump(mode="json") if features else None)
        run.folder.check_setting("audit.features", audited, text=text, code="E_DEFENCES")


def _number(run: Run, alignment: Alignment) -> int:
    """Count this training if it draws new secrets, and return its number among those with this partner over this table.

    The first is 1; a training that draws no new secret is not counted and returns 1. The count is on disk before the training
    sends its first message. So it stays counted even if the training fails.

    Raises:
        PolicyError: it would be more than this owner allows (``E_BUDGET``).

    Leaks: a refusal shows roughly how many trainings this owner allows. Apart from that number, it depends only on what both
    parties know, and on this owner's names of tables: how many trainings there were over which, and whether rows can be
    synthetic. Under apsi every training counts, even if no row is synthetic. Otherwise the passive party would learn from the
    count whether its shared order is exactly the intersection. For the same reason the training is counted before this owner
    looks at how many records are shared.
    """
    anew = _draws_anew(run, synthetic=alignment.hides_intersection or alignment.has_synthetic_rows)
    counts = (_training_counts(run) if anew else []) + _clear_counts(run)
    number = run.session.memory.count(*counts) if counts else 1
    return number if anew else 1


def _draws_anew(run: Run, *, synthetic: bool) -> bool:
    """Whether this training draws new secrets. A peer that compares several such trainings learns more than from one.

    These secrets are synthetic rows, the initial weights of a model whose weights are revealed or whose halves are handed over,
    or the choice of held-out records over which sums are revealed. Trainings over one alignment have the same synthetic rows,
    and count all the same. ``synthetic``: whether any row may be synthetic.
    """
    job, train = run.session.job, run.session.job.train
    opens = train is not None and (train.opens(job.evaluate).anew or job.export is not None)
    return opens or (train is not None and train.traits.synthetic_rows and synthetic)


def _training_counts(run: Run) -> list[Counted]:
    """The entries by which this training, or each of a sweep, is counted: over its table, and over its records."""
    limit, identity = run.session.policy.limits.budgets.trainings, run.data.whole.identity
    return [
        count
        for name in _trial_names(run)
        for count in (telling_training(run.data.name, identity, name, limit), telling_training_of_set(identity, name, limit))
    ]


def _clear_counts(run: Run) -> list[Counted]:
    """The same of what it sends in the clear; none if no message depends on a single row."""
    limit, job = run.session.policy.limits.budgets.trainings_in_clear, run.session.job
    if job.train is None or not job.train.traits.opens_rows:
        return []
    return [
        count for name in _trial_names(run) for count in clear_training(run.data.name, run.data.whole.identity, name, limit)
    ]


def _trial_names(run: Run) -> list[str]:
    """What its training, or each of a sweep, is counted as."""
    job, job_id = run.session.job, run.session.attempt.job_id
    return [trial_name(job_id, number) for number in range(len(job.sweep.settings()) if job.sweep else 1)]


def _check_enough(run: Run, result: Aligned) -> None:
    """Stop if fewer records are shared than the active party's owner wants (``obfuscation.min_intersection``).

    It comes after the alignment, in which the obfuscated set was agreed.

    Raises:
        PolicyError: too few are shared (``E_STOPPED``).

    Leaks: that this party stops because its owner wants so. The peer may guess the reason.
    """
    alignment, hints = result.alignment, result.doubt.hints if result.doubt else ()
    least, shared = run.session.policy.obfuscation.min_intersection, alignment.common
    if alignment.hides_intersection and shared is not None and shared < least:
        raise PolicyError(
            f"{shared} records are shared, fewer than this owner's minimum of {least}",
            code="E_STOPPED",
            hint=" ".join(
                ("see obfuscation.min_intersection; that the job stops already tells the other party something.", *hints)
            ),
            for_peer="its owner does not go on",
        )
