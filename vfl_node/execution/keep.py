"""What a run leaves on this party's disk: its part of the model, and the report last."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.data.marks import Marks
from vfl_node.data.stability import NotedTable
from vfl_node.execution.align import Aligned
from vfl_node.execution.located import location_cautions
from vfl_node.execution.run import Run
from vfl_node.ledger import Disclosure
from vfl_node.models import storage
from vfl_node.process import failpoints
from vfl_node.process.files import private_folder, write_checked, write_whole
from vfl_node.process.machine import utc_now
from vfl_node.report import envelope, page, timeline
from vfl_node.session.memory import mark_secret
from vfl_node.session.session import Session
from vfl_node.training.prediction.stored import FileShown, StoredPredictor
from vfl_node.training.predictor import ReportedPredictions
from vfl_node.training.trainer import Servable, Trained
from vfl_node.transport.pipe import Traffic

NO_HALVES: Mapping[str, bytes] = {}


def traffic_of(session: Session, aligned: Aligned | None) -> dict[str, Traffic]:
    """Phase → traffic with all data peers; with the coordinator as ``PHASE (coordinator)``.

    Args:
        session: this party's.
        aligned: the alignment, whose traffic may be that of an earlier attempt.
    """
    moved = session.traffic()
    if aligned:
        moved["align"] = aligned.traffic
    if session.coordinator:
        moved |= {f"{phase} (coordinator)": traffic for phase, traffic in session.coordinator.traffic.items()}
    return moved


def keep(
    run: Run,
    started: str,
    traffic: Mapping[str, Traffic],
    *,
    aligned: Aligned | None = None,
    trained: Trained | None = None,
    halves: Mapping[str, bytes] = NO_HALVES,
    predictions: ReportedPredictions | None = None,
    coordinated: Mapping[str, tuple[Disclosure, ...]] | None = None,
) -> None:
    """Write this party's artefacts.

    Args:
        run: this party's.
        started: when it began, ISO 8601.
        traffic: phase → bytes and messages.
        aligned: what the job aligned; None at a coordinator, and for predictions of known records.
        trained: what it trained, if it did.
        halves: name of a file → what other parties have given to this one.
        predictions: of a job that makes some.
        coordinated: at a coordinator that took part in the alignment, party → what it learnt there.
    """
    failpoints.reach("keep")
    session, folder = run.session, run.folder
    private_folder(folder.artefacts)
    if trained and trained.weights:
        head = {
            "job": session.attempt.job_id,
            "manifest_digest": session.job.digest(),
            "party": session.name,
            "input": run.data.table.digest().hex(),
            **trained.head(run.data.table.classes),
        }
        storage.save(folder.artefacts / "model.safetensors", trained.weights, head)
    for name, content in halves.items():
        write_whole(folder.artefacts / name, content)
    if trained and trained.servable and (session.job.serve or folder.trial.keeps):
        _keep_predictor(run, trained, trained.servable)
    reusable = session.job.serve or not session.job.align.spec.coordinated
    if aligned and reusable and not session.job.predict and not folder.trial.keeps:
        write_checked(folder.rows, Marks.from_table(run.data.table, mark_secret(session.memory)).to_bytes())
    if aligned and trained and trained.weights and not folder.trial.keeps and not session.job.align.spec.by_similarity:
        own = aligned.alignment.rows[aligned.alignment.owned]
        write_checked(folder.columns, NotedTable.from_table(run.data.table.take(own)).to_json())
    # One that holds out no rows hands on how the job did whose alignment it has used again.
    if (split := (trained and trained.split) or session.attempt.split) and not folder.trial.keeps:
        write_checked(folder.split, split)
    if (evidence := (trained and trained.evidence) or session.attempt.evidence) and not folder.trial.keeps:
        write_checked(folder.evidence, evidence.to_json().encode())
    report = envelope.build(
        job=session.job,
        job_id=session.attempt.job_id,
        party=session.name,
        alignment=aligned.alignment if aligned else None,
        align_seconds=aligned.seconds if aligned else None,
        align_warnings=_alignment_cautions(run, aligned) if aligned else (),
        reused=aligned.reused if aligned else None,
        records=len(run.inputs.whole) if run.inputs else None,
        merged=run.inputs.whole.merged if run.inputs else None,
        classes=run.inputs.table.classes if run.inputs else (),
        protection=session.policy.protection,
        traffic=traffic,
        training=trained,
        predictions=predictions,
        coordinated=coordinated,
        started=started,
        finished=utc_now(),
        versions=envelope.installed_versions(),
        seeded=folder.trial.seeded,
    )
    told = timeline.tell(run.trace, session.attempt.job_id, session.name)
    write_whole(folder.artefacts / timeline.TRACE, told.to_json())
    page.write(report, folder.artefacts)
    learnt = {name: [{"what": each.what, "count": each.count} for each in entries] for name, entries in report.learnt.items()}
    for memory in session.memories.values():
        memory.report(session.attempt.job_id, learnt)
    folder.seal()
    failpoints.reach("kept")


def _keep_predictor(run: Run, trained: Trained, servable: Servable) -> None:
    """Store what predictions need beside the alignment and the model, which are stored already.

    Args:
        run: this party's, of the training job.
        trained: the training; in a trial it is stored which rows it did not train on.
        servable: what it leaves for predictions.
    """
    folder, table = run.folder, run.data.table  # of which each record must be the same when it predicts
    FileShown.begin(folder.shown, servable.tested)
    apart = {name: tuple(getattr(trained, name).tolist()) for name in ("held_out", "validated")} if folder.trial.keeps else {}
    digest, classes = table.digest().hex(), table.classes
    folder.keep_predictor(
        StoredPredictor(
            input=digest, encoder=trained.encoder, serving=servable.state, classes=classes, trial=trained.chosen, **apart
        )
    )


def _alignment_cautions(run: Run, aligned: Aligned) -> tuple[str, ...]:
    """What the owner should know of the alignment."""
    doubt = (aligned.doubt.text,) if aligned.doubt else ()
    return (*doubt, *aligned.recognisable, *location_cautions(run.session.job, aligned.alignment, run.data.table))
