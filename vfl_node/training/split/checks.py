"""What a party refuses before a split training sends anything: batches and defences that do not go with the job."""

from __future__ import annotations

from vfl_node.errors import UsageError
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import cut_width
from vfl_node.privacy.defences.decoding import ColumnParams
from vfl_node.privacy.defences.dp import budget
from vfl_node.privacy.defences.idle import effective, outgoing_direction
from vfl_node.session.session import Session
from vfl_node.training.messages import check_batch_fits
from vfl_node.training.split.config import Train
from vfl_node.training.split.half import has_two_classes
from vfl_node.training.split.randomised import check_randomised


def check_batch(rows: int, train: Train, *, setting: str = "train.batch_size") -> None:
    """Refuse batches whose embeddings one message cannot hold; ``setting`` sets ``rows``. Raises UsageError (``E_SIZE``)."""
    width = max(cut_width(train), train.unaligned.exchanged_width(cut_width(train)))
    narrower = "narrow the last layer of train.bottom"
    check_batch_fits(rows, 4 * width, cause=f"at a cut layer of width {width}", setting=setting, narrower=narrower)


def check_defences(session: Session) -> None:
    """Refuse defences that do not protect what this job sends.

    Raises:
        UsageError: the job draws embeddings for rows that this party lacks, beside a defence of columns; its labels are not
            of two classes, beside a defence that is about two; it hands over the half that ``dp`` does not cover; or it does
            something that ``randomised-labels`` does not allow (``E_CONFIG``).
    """
    _check_labels(session)
    _check_half(session)
    check_randomised(session)
    _check_projections(session)
    missing, spec = Train.section_of(session.job).missing, ALIGNMENTS[session.job.align.protocol]
    drawn = missing.feature_strategy.embeddings and session.role in spec.synthetic_rows_at
    named = [params.name for params in session.policy.protection.defences if isinstance(params, ColumnParams)]
    if drawn and named and session.role == "passive":
        raise UsageError(
            f"the defence {named[0]!r} changes the network that makes embeddings, and train.missing.features: "
            f"{missing.features} draws those of rows that this party lacks without it",
            code="E_CONFIG",
            hint="the job can say train.missing.features: smoothed; or remove the defence from this node's settings",
            for_peer=f"its settings do not allow train.missing.features: {missing.features}",
        )


def _check_half(session: Session) -> None:
    """Refuse to hand over a half that was trained on the labels themselves, where ``dp`` bounds what gradients tell of them.

    Raises:
        UsageError: so it is (``E_CONFIG``).
    """
    defences = effective(session.policy.protection.defences, outgoing_direction(session.role))
    if session.role == "active" and session.job.receiver not in (None, session.name) and budget(defences, 1):
        raise UsageError(
            "the defence 'dp' bounds what gradients tell of a label, and export.joint hands over this party's half, which "
            "learns from labels without noise",
            code="E_CONFIG",
            hint="say export: {joint: active}, or leave export out; or remove the defence from this node's settings",
            for_peer="its settings do not allow export",
        )


def _check_projections(session: Session) -> None:
    """Refuse to send projections of columns that this owner's defences hide in embeddings alone.

    A defence of columns moves the bottom by what a decoder makes of the embeddings that it gives in training with labels; what
    is learnt before, and what a head makes of it, is no part of that. The active party's defences protect labels, of which
    projections tell nothing.

    Raises:
        UsageError: there is such a defence (``E_CONFIG``).
    """
    method = Train.section_of(session.job).unaligned
    if method.exchanges != "projections" or session.role != "passive":
        return
    chosen = session.policy.protection.defences
    covered = effective(chosen, "projections")
    if named := [params.name for params in effective(chosen, outgoing_direction(session.role)) if params not in covered]:
        raise UsageError(
            f"the defence {named[0]!r} changes embeddings alone, and train.unaligned: {method.method} sends projections of the "
            "same columns, too",
            code="E_CONFIG",
            hint="the job can choose another method; or remove it from this node's settings, in favour of noise, which changes "
            "both",
            for_peer=f"its settings do not allow train.unaligned: {method.method}",
        )


def _check_labels(session: Session) -> None:
    """Refuse defences of labels of two classes in a job with others. Raises UsageError (``E_CONFIG``)."""
    protection = session.policy.protection
    if session.role != "active" or has_two_classes(session):
        return
    named = [f"the defence {params.name!r}" for params in protection.defences if params.needs_two_classes]
    if named:
        raise UsageError(
            f"{named[0]} is for labels of two classes, and those of this job are not",
            code="E_CONFIG",
            hint="remove it from this node's settings for this job; dp, maxnorm and isotropic work with any labels",
            for_peer="its settings do not allow labels that are not of two classes",
        )
