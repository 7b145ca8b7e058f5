"""Which defences of a node's settings have something to change, and whether its audits have something to look at."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from vfl_node.settings.defences import DEFENCES, DefenceParams, Direction
from vfl_node.settings.protection import FeatureAuditSettings, Protection


def outgoing_direction(role: str) -> Direction:
    """The tensors that the data party in ``role`` sends."""
    return "embeddings" if role == "passive" else "gradients"


def effective(defences: Sequence[DefenceParams], sent: Direction) -> tuple[DefenceParams, ...]:
    """Those of ``defences`` that change tensors of the kind ``sent``."""
    return tuple(params for params in defences if sent in DEFENCES[params.name].directions and not params.changes_nothing)


def idle_defences(
    defences: Sequence[DefenceParams], role: str, defended: Collection[str], activity: Literal["training", "predictions"]
) -> tuple[str, ...]:
    """Warnings where the owner's settings have defences that change nothing of what this party sends, or may not protect it.

    Args:
        defences: of this party's settings.
        role: its role.
        defended: the tensors that are sent through defences.
        activity: what the job does.
    """
    at_work = effective(defences, outgoing_direction(role)) if outgoing_direction(role) in defended else ()
    idle = [params.name for params in defences if params not in at_work]
    trained = [params.name for params in at_work if params.trains and activity == "predictions"]
    warnings = []
    if idle:
        warnings.append(
            f"Of the defences in this node's settings these changed nothing that it sent in {activity}: {', '.join(idle)}."
        )
    if trained:
        warnings.append(
            "Of the defences in this node's settings these protect a model in its training only, so the embeddings of "
            f"predictions are protected if the model was trained with them, and else not: {', '.join(trained)}."
        )
    return tuple(warnings)


def idle_label_limit(protection: Protection, role: str, labels: Mapping[str, float | None]) -> tuple[str, ...]:
    """A warning where the owner's limit on labels was not looked at, as nothing was judged.

    Args:
        protection: of this party's settings.
        role: its role.
        labels: what its attacks on its labels found.
    """
    if protection.max_label_auc is None or role != "active" or labels:
        return ()
    return (
        "attacks.labels stopped nothing, since no label was judged: this training sent no gradients of rows, or it had "
        "fewer than 10 rows of a class.",
    )


def idle_feature_audit(
    features: FeatureAuditSettings | None, role: str, defended: Collection[str], activity: Literal["training", "predictions"]
) -> tuple[str, ...]:
    """A warning where the owner's settings have columns that nobody tried to rebuild.

    Args:
        features: of this party's settings.
        role: its role.
        defended: the tensors that are sent through defences, and that an audit sees.
        activity: what the job does. Predictions are not audited: the training has judged rows held out by the same weights.
    """
    sees = activity == "training" and outgoing_direction(role) == "embeddings" and "embeddings" in defended
    if features is None or sees:
        return ()
    return (f"The columns of audit.features were not tried in {activity}, so this report does not say whether they leak.",)
