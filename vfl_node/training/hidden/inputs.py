"""What a party brings to a training in shares: its columns, which rows are its own, labels and first weights, as integers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, encode
from vfl_node.data.evidence import weigh
from vfl_node.data.tables import LabelColumn
from vfl_node.errors import DataError
from vfl_node.session.session import Session
from vfl_node.training import own_columns
from vfl_node.training.glm.plain import one_hot
from vfl_node.training.hidden import frequent
from vfl_node.training.hidden.computation import Own, Positions, WeightShares
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.rows import FAR, RowEncoder
from vfl_node.training.shares.metric_noise import MOST_SQUARE
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import TrainingData

START = 0.1
"""Standard deviation of the part of first weights that a party does not know, without hidden layers. The owner of a weight that
hardly any shared record moves sees this instead of zero."""

RARE = (
    "fewer than {least} of this party's records differ from the others there, and its weight would tell about these "
    "(least_rows)"
)
OUTSTANDING = (
    "one of this party's records has more than a fifth of its sum of squares, and its weight would tell about it (least_rows)"
)
LATE = (
    "a partner's first training had none of it, and which columns enter stays the same, since partners see how many these are. "
    "Under another name in this node's settings the table begins anew"
)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What one party brings.

    Attributes:
        rows: how its columns are encoded; holds its own data.
        dropped: names of columns of the table, without levels, that do not enter, or not with all levels.
        warnings: whole sentences about them and their scaling, for the owner.
        labels: float64[n, K] of 0 and 1, or scaled numbers; None without labels.
        scale: of numbers; None of classes, and without labels.
        own: the same as integers in the shared order.
        spread: mean square of its own held-out targets' distances from their mean, scaled, each cut as metrics cut squared
            errors; 0 without such.
    """

    rows: RowEncoder
    dropped: tuple[str, ...]
    warnings: tuple[str, ...]
    labels: np.ndarray | None
    scale: TargetScale | None
    own: Own
    spread: float = 0.0

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.own.columns.shape[1])


def prepare(session: Session, data: TrainingData, training: Positions, testing: Positions) -> Inputs:
    """Encode this party's table, of whose shared rows some are trained and others tested on.

    Which columns enter is written down before anything is sent (:mod:`vfl_node.training.hidden.frequent`).

    Raises:
        DataError: nothing to train on (``E_EMPTY``), no columns at a passive party (``E_NO_FEATURES``), no labels
            (``E_NO_LABEL``) or one target only (``E_ONE_CLASS``) where they belong.
        StateError: partners have seen different widths of this table (``E_INPUT_CHANGED``).
    """
    train, active = Hidden.section_of(session.job), session.role == "active"
    if len(training) == 0:
        raise DataError(
            f"{len(data.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    whole, least = data.whole or data.table, session.policy.limits.least_rows
    evidence, name = own_columns.find_evidence(session), data.name
    read = weigh(whole, evidence)
    found = frequent.find(read, least)
    entering = found.entering if active or any(found.entering.values()) else {}  # else there is nothing that should stay
    if evidence:
        name, entering = frequent.BY_EVIDENCE.format(table=name), frequent.all_numbers(read)
    memories = [session.memories[other] for other in session.others]
    features = frequent.write_down(memories, name, entering)
    if not (active or features):
        raise DataError(
            "this party's table has no column to train on",
            code="E_NO_FEATURES",
            hint="add columns that vary, or declare ignored ones in data.columns; least_rows leaves out rare ones",
        )
    bins, bounded = train.columns == "bins", train.epsilon is not None
    fitted = RowEncoder.fit(whole, features, found, train.scaling, bins=bins, bounded=bounded, evidence=evidence)
    values = fitted.transform(data.table, intercept=active)
    rows = data.alignment.rows
    mine = rows >= 0
    columns = np.zeros((len(rows), values.shape[1]), np.uint64)
    columns[mine] = encode(values[rows[mine]])
    targets = np.zeros((len(rows), train.outputs), np.uint64)
    labels, scale = _labels(data.table.labels, whole.labels, train) if active else (None, None)
    if labels is not None:
        targets[mine] = encode(labels[rows[mine]], 2 * FRACTION)
    scaled = {encoding.name for encoding in fitted.encodings if encoding.method}
    squeezed = [name for name in own_columns.find_squeezed(read, train.scaling) if name in scaled]
    late = tuple(frequent.late_features(found, features))
    warnings = (
        *own_columns.scaling_warnings(squeezed, fitted.encodings),
        *own_columns.drop_warnings(_names_shown(found, "rare"), RARE.format(least=least)),
        *own_columns.drop_warnings(_names_shown(found, "outstanding"), OUTSTANDING),
        *own_columns.drop_warnings([feature.shown for feature in late], LATE),
    )
    unread = [name for name in whole.columns if name not in fitted.kinds]
    dropped = tuple(dict.fromkeys([*unread, *(feature.shown for feature in (*found.left_out, *late))]))
    own = Own(columns, mine[:, None].astype(np.uint64), targets)
    inputs = Inputs(fitted, dropped, warnings, labels, scale, own)
    if labels is None or scale is None:
        return inputs
    tested = labels[rows[testing[mine[testing]]]]
    if not len(tested):
        return inputs
    return replace(inputs, spread=float(np.minimum((tested - tested.mean()) ** 2, MOST_SQUARE).mean()))


def _names_shown(found: frequent.FoundFeatures, reason: frequent.Reason) -> list[str]:
    return [feature.shown for feature, why in found.left_out.items() if why == reason]


def _labels(labels: LabelColumn | None, whole: LabelColumn | None, train: Hidden) -> tuple[np.ndarray, TargetScale | None]:
    """y of all rows, float64[n, K]; numbers in deviations of the whole table's, which who is shared does not change."""
    if labels is None or whole is None:
        raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
    if train.task == "classification":
        return one_hot(labels, train.classes), None
    scale = TargetScale.from_range(*train.target_range) if train.target_range else TargetScale.fit(whole)
    return np.clip(scale.apply(labels), -2 * FAR, 2 * FAR)[:, None], scale


def first_parts(form: Form, randomness: Randomness, *, bounded: bool) -> WeightShares:
    """This party's shares of the weights to begin with; velocities are zero.

    With noise, where rows are ``bounded``, all are zero. Without it they are normal, biases too: with a variance of 1 / inputs,
    or without hidden layers so that what the others draw has a standard deviation of :data:`START`. Every party draws its part,
    so nobody knows the sum. Else the owner of a weight would see by how much training has moved it, and a column in which few
    records differ would tell whether these are shared.
    """
    nothing, parties = tuple(np.zeros(shape, np.uint64) for shape in form.shapes), len(form.widths)
    if bounded:
        return WeightShares(nothing, nothing)
    inputs = [sum(form.widths)] * parties + [width for width in form.hidden for _ in ("weight", "bias")]
    weights = []
    for index, (shape, fan) in enumerate(zip(form.shapes, inputs, strict=True)):
        spread = 1 / np.sqrt(fan * parties) if form.hidden else START / np.sqrt(parties - 1)
        drawn = randomness.derive(f"weight {index}").normal(shape) * spread
        weights.append(encode(drawn, WEIGHT_FRACTION))
    return WeightShares(tuple(weights), nothing)


def digest_of(own: Own, first_weights: bytes) -> bytes:
    """SHA-256 of all that a party's values are made of; ``first_weights`` stand for what these are drawn from."""
    hashed = hashlib.sha256(b"vfl-node hidden inputs 1" + first_weights)
    for values in (own.columns, own.bits, own.targets):
        hashed.update(np.array(values.shape, "<u8").tobytes())
        hashed.update(np.ascontiguousarray(values, "<u8").data)
    return hashed.digest()
