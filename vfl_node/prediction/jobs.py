"""Which job predicts by a model that another one trained, and who may ask for it."""

from __future__ import annotations

from vfl_node.errors import UsageError
from vfl_node.job import Align, Expected, Job, Predict, differing_fields
from vfl_node.training.predictor import check_allowed, check_known


def check(job: Job, trained: Job, offered_by: str, own: str) -> None:
    """Refuse a job of predictions that is impossible or that the training job does not allow, before it begins.

    Args:
        job: that predicts.
        trained: the job that trained the model, as this node has it.
        offered_by: the party from which this node hears of it; itself where its owner submits it.
        own: this party's name.

    Raises:
        StateError: nothing of the training was kept to predict with (``E_NO_MODEL``).
        UsageError: other parties trained it, another one submits than asks, the model predicts no known records, or the job
            is not :func:`job_for`'s (``E_PREDICT``).
        PolicyError: the training job names another party that may ask (``E_PREDICT``).
    """
    predict = predict_of(job)
    if trained.parties.data != job.parties.data:
        raise UsageError(
            f"job {predict.model} was trained by {', '.join(trained.parties.data)}, and only they can predict by it",
            code="E_PREDICT",
            for_peer="other parties trained that model",
        )
    check_allowed(job, trained.serve)
    if predict.rows == "known":
        check_known(trained)
    if own in job.parties.data and offered_by != _offering_party(job, own):
        raise UsageError(
            f"{offered_by} cannot have predictions made for {job.asker}",
            code="E_PREDICT",
            hint="whoever gets them asks for them",
            for_peer="predictions are asked for by the party that gets them",
        )
    agreed = _job(trained, predict)
    if others := differing_fields(job.field_digests(), agreed.field_digests()):
        reason = f"its {', '.join(others)} must be as the training says"
        raise UsageError(
            f"job {job.name!r} cannot predict by the model of job {predict.model}: {reason}",
            code="E_PREDICT",
            hint="`vfl-node predict` makes the job",
            for_peer=reason,
        )


def _offering_party(job: Job, own: str) -> str:
    """The party from which ``own`` hears of a job: the asker, or the active party for one with whom it does not talk."""
    asker = str(job.asker)
    return asker if asker in (own, *job.parties.peers_of(own)) else job.parties.active


def job_for(trained: Job, model: str, asker: str, *, new: bool) -> Job:
    """The job by which the party ``asker`` gets predictions of the model that the job ``trained``, of id ``model``, trained.

    Known records keep the model's alignment. New ones are intersected, with all records of all, whatever the
    training did, since of a record that a party lacks each job would have other synthetic columns: by the protocol that
    ``serve.align`` names, else by that of the training if it gives each party every row, else by psi. In upsi the party that
    gets them asks, whichever served in training.
    """
    return _job(trained, Predict(model=model, to=trained.parties.role_or_name(asker), rows="new" if new else "known"))


def _job(trained: Job, predict: Predict) -> Job:
    """The only job that predicts in this way by the model of ``trained``; nothing in it is left to its submitter."""
    align = trained.align
    protocol = (trained.serve and trained.serve.align) or (align.protocol if align.spec.every_row_is_shared else "psi")
    if protocol == align.protocol:
        intersect = align.model_copy(update={"at_most": None, "expect": Expected(), "reuse": None})
    else:
        intersect = Align(protocol=protocol, group=align.group, id_form=align.id_form, padding=align.padding)
    if intersect.spec.answers_questions:  # whoever wants predictions asks about its records
        is_active = trained.parties.members(predict.to) == (trained.parties.active,)
        intersect = intersect.model_copy(update={"server": "passive" if is_active else "active"})
    coordinated = trained.train is not None and trained.train.traits.serves_coordinated
    return Job(
        name=f"{trained.name[:55].rstrip('-')}-predict",
        parties=trained.parties if coordinated else trained.parties.model_copy(update={"coordinator": None}),
        tables=trained.tables,
        align=intersect if predict.rows == "new" else align.model_copy(update={"reuse": None}),
        predict=predict,
    )


def predict_of(job: Job) -> Predict:
    """The section of a job that predicts."""
    assert job.predict is not None
    return job.predict
