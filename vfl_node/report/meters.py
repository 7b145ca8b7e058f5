"""Three meters of what the other parties can tell from what this one has sent: labels, membership, columns.

Each is the strongest of this party's own attacks, in one form for all tasks and alignments. Where no attack ran, the meter says
so, and why: it is never left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from vfl_node.gdp import Exposure, auc_bound
from vfl_node.privacy.labels.words import INFORMED, describe_known
from vfl_node.progress import CONSTANT, Rebuilt
from vfl_node.training.section import JointAttack, Section

if TYPE_CHECKING:  # a node's view of a job needs no torch
    from vfl_node.alignment.alignment import Alignment
    from vfl_node.job import Job
    from vfl_node.roles import Role
    from vfl_node.settings.protection import Protection
    from vfl_node.training.trainer import Trained

Level = Literal["low", "some", "high", "open", "not_measured"]

LOW, SOME = 0.60, 0.80
"""Figures below which labels and membership are hardly told, and told in part; .5 is chance and 1 is all."""

LOW_GAIN, SOME_GAIN = 0.1, 0.4
"""The same of columns: how much of what a constant leaves is rebuilt."""

Figures = Mapping[str, float | None]


class Meter(Section):
    """How much one secret of this party can be told by what it has sent."""

    level: Level = Field(
        description="low, some, high: by value, and low where nothing of a row is sent in the open; open: the alignment or the "
        "training itself tells it; not_measured: no attack ran, see why"
    )
    value: float | None = Field(
        default=None,
        description="of the strongest attack. Labels and membership: AUC or what is like it for other labels, folded: .5 is "
        "chance, 1 is all. Columns: of what always guessing the same leaves, the share that is rebuilt, of the worst column",
    )
    attack: str | None = Field(default=None, description="which attack that is")
    knows: str | None = Field(default=None, description="what the peer is assumed to know already")
    over: int = Field(default=0, ge=0, description="trainings that the figure counts: repeats, and earlier jobs with a partner")
    estimate: bool = Field(
        default=False, description="whether the peer's own columns were not at hand, and others stood for them"
    )
    why: str | None = Field(default=None, description="a sentence, where nothing was measured, or nothing needs to be")


class Meters(Section):
    """The three meters of one party; null where the party has no such secret in this job."""

    labels: Meter | None
    membership: Meter | None
    columns: Meter | None


def meters_of(job: Job, role: Role, alignment: Alignment, protection: Protection, trained: Trained) -> Meters:
    """Those of a party with data, at the end of a training."""
    assert job.train is not None
    traits, holds = job.train.traits, role == job.train.label_holder
    unmetered, told, labels = traits.unmetered, _told_members(alignment, role), None
    if not traits.opens_rows:
        closed = _closed(job.train.opens(job.evaluate), unmetered)
        return Meters(labels=closed if holds else None, membership=told or closed, columns=closed)
    columns = Meter(level="not_measured", why=unmetered or "no attack on what gradients tell of own columns is known here")
    opened = Meter(level="open", why=f"algorithm {job.train.algorithm} sends them as they are")
    if holds and "labels" in traits.opens:
        labels = opened
    elif holds:
        off = "" if protection.labels else "audit.labels is false in this node's settings"
        few = "too few rows have a label of their own to judge"
        labels = labels_meter(trained.audits.labels, trained.audits.trainings, unmetered or off or few)
    if "columns" in traits.opens:
        columns = opened
    elif role == "passive":
        off = "" if protection.features else "audit.features names no column in this node's settings"
        found = {name: dict(figures) for name, figures in (trained.audits.features or {}).items()}
        columns = columns_meter(found, unmetered or off or "too few rows could be judged")
    return Meters(labels=labels, membership=told or _membership(alignment, protection, trained, unmetered), columns=columns)


def _closed(exposure: Exposure, why: str) -> Meter:
    """The meter of a training that sends nothing of a row in the open: by the bound of what is opened at its end."""
    if exposure.unbounded:
        return Meter(level="not_measured", why="what is opened at the end has no bound: see privacy in its training section")
    return Meter(level=level_of(auc_bound(exposure.mu)), why=why)


def _told_members(alignment: Alignment, role: Role) -> Meter | None:
    """The meter of membership where the alignment itself tells others which of this party's records are shared."""
    other: Role = "active" if role == "passive" else "passive"
    if not alignment.spec.shows_shared_records_to(other):
        return None
    whom = "all parties" if alignment.spec.shows_shared_records_to(role) else f"the {other} party"
    return Meter(level="open", why=f"{alignment.protocol} shows {whom} which records are shared")


def _membership(alignment: Alignment, protection: Protection, trained: Trained, unmetered: str) -> Meter:
    off = "" if protection.membership else "audit.membership is false in this node's settings"
    none = "no shared row of this party is made up" if not alignment.missing else "too few rows could be judged"
    meter = membership_meter(trained.audits.membership, 1, unmetered or off or none)
    return add_joint(meter, trained.audits.joint) if trained.audits.joint else meter


def live_meters(attacks: Figures, labels: Figures, rebuilt: Rebuilt) -> dict[str, Any]:
    """Name → meter of those of which an epoch shows something, as JSON; figures as in the events of a job under way."""
    columns = {}
    for name, figures in rebuilt.items():
        attack, value = _strongest({attack: success for attack, success in figures.items() if attack != CONSTANT})
        columns[name] = {"worst": value, "constant": figures.get(CONSTANT), "attack": attack}
    found = {
        "labels": labels_meter(labels, 0, ""),
        "membership": membership_meter(attacks, 0, ""),
        "columns": columns_meter(columns, ""),
    }
    return {name: meter.model_dump(mode="json") for name, meter in found.items() if meter.value is not None}


def level_of(value: float, low: float = LOW, some: float = SOME) -> Level:
    """How bad a figure is."""
    return "low" if value < low else "some" if value < some else "high"


def labels_meter(figures: Figures, over: int, why: str) -> Meter:
    """The meter of the attacks on labels (``figures``, folded) after so many trainings; ``why`` none ran, where none did."""
    name, value = _strongest(figures)
    if name is None or value is None:
        return Meter(level="not_measured", why=why)
    return Meter(level=level_of(value), value=value, attack=name, knows=describe_known(name), over=over)


def membership_meter(figures: Figures, over: int, why: str) -> Meter:
    """The meter of the attacks on membership, not folded; ``why`` as :func:`labels_meter`."""
    name, value = _strongest({name: None if auc is None else 0.5 + abs(auc - 0.5) for name, auc in figures.items()})
    if name is None or value is None:
        return Meter(level="not_measured", why=why)
    return Meter(level=level_of(value), value=value, attack=name, knows="nothing", over=over)


def add_joint(meter: Meter, attack: JointAttack) -> Meter:
    """The ``meter`` of membership beside the attack with both parties' columns, if that tells more."""
    value = 0.5 + abs(attack.value - 0.5)
    if meter.level == "open" or (meter.value or 0.0) >= value:
        return meter
    return Meter(level=level_of(value), value=value, attack="joint", knows="nothing", over=1, estimate=attack.estimate)


def columns_meter(found: Mapping[str, Mapping[str, Any]], why: str) -> Meter:
    """The meter of the attacks on columns.

    Args:
        found: column → ``worst``, ``constant``, ``attack``, ``known``.
        why: as :func:`labels_meter`.
    """
    gains = {
        name: (figures["worst"] - (figures["constant"] or 0.0)) / max(1 - (figures["constant"] or 0.0), 1e-9)
        for name, figures in found.items()
        if figures.get("worst") is not None
    }
    if not gains:
        return Meter(level="not_measured", why=why)
    worst = max(gains, key=gains.__getitem__)
    value = min(max(gains[worst], 0.0), 1.0)
    level = level_of(value, LOW_GAIN, SOME_GAIN)
    knows = found[worst].get("known")
    known = None if knows is None else f"{knows} rows"
    return Meter(level=level, value=value, attack=found[worst]["attack"], knows=known, over=1)


def _strongest(figures: Figures) -> tuple[str | None, float | None]:
    known = {name: value for name, value in figures.items() if value is not None}
    name = min(known, key=lambda name: (-known[name], name in INFORMED, name), default=None)  # of equal ones the cheapest
    return name, known.get(name) if name else None
