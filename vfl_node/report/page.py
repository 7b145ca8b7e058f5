"""``report.html``: one report as a page that needs no other file, no network and no script."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vfl_node.alignment.words import ReportedAlignment, words_of
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import TrainerConfig
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.process.files import private_folder, write_whole
from vfl_node.report import charts, read_labels, rebuilt, results
from vfl_node.report.charts import Bar, Row
from vfl_node.report.curves import ChartLine, line_chart
from vfl_node.report.terms import TERMS, anchor
from vfl_node.report.words import SEEDED, attack_figures, human_bytes, human_count, human_seconds, human_time, join_names
from vfl_node.training.words import Code, ReportedTraining, TrainingWords

if TYPE_CHECKING:
    from vfl_node.report.envelope import Report

TEMPLATES = Path(__file__).parent / "templates"

SETS_TITLE = "Records of each party, and what they share"

ATTACK_STYLES = ("fourth", "fifth", "joint", "alone", "second", "first", "third")
"""Classes of the style sheet for attacks, in the order of their registry; further ones begin again."""


def render(report: Report) -> str:
    """The page of ``report``."""
    environment, style = _environment()
    data, names = report.model_dump(mode="json"), report.parties
    job = Job.model_validate(report.job.spec, context=LASTING_NAMES)
    train, spec = job.train, job.model_dump(mode="json")  # by the names of today
    peers = names.others(report.party)
    met = [name for name in peers if name in names.peers_of(report.party)]
    peer, partner, unit = join_names(peers), join_names(met), train.traits.unit if train else ""
    readings = results.readings(data, train.classes if train else 2)
    aligned = _describe_alignment(report, train, peer) if report.alignment else None
    trainer = _trainer_words(report, train, partner)
    return environment.get_template("report.html.j2").render(
        report=data,
        seeded=SEEDED if report.seeded else None,
        others=[name for name in names.all if name != report.party],
        peer=peer,
        several_peers=len(peers) > 1,
        held_out_last=bool(train and spec["evaluate"]["hold_out"]),
        several_passive=len(names.passive) > 1,
        partner=partner,
        several_partners=len(met) > 1,
        metric_names=readings,
        terms=TERMS,
        seconds=(datetime.fromisoformat(report.finished) - datetime.fromisoformat(report.started)).total_seconds(),
        label_holder=train.label_holder if train else "active",
        unit=unit,
        trainer=trainer,
        bars=charts.draw_bars(trainer.bars),
        curves=_curves(data, unit),
        audit=_audit(data, unit),
        rebuilt=rebuilt.feature_audit(data),
        labels=read_labels.label_audit(data),
        rivals=results.rivals(data),
        comparisons=results.comparisons(data),
        methods=results.methods(data, readings),
        confusions=results.confusions(data),
        agreement=results.agreement(data),
        constant=results.CONSTANTS[train.task] if train else "",
        aligned=_alignment_words(data["alignment"], aligned) if aligned else None,
        shares_metrics=not report.alignment or "passive" not in ALIGNMENTS[report.alignment.protocol].intersection_hidden_from,
        sizes=_sizes(data, aligned, peers) if aligned else [],
        sets=_sets(data, peers) if aligned else None,
        traffic=_traffic(data),
        style=Markup(style),  # noqa: S704 - our own file
        style_source=csp_source(style),
        settings=_settings(spec),
    )


def write(report: Report, folder: Path) -> None:
    """Write ``report.html`` and ``report.json`` into ``folder``, each whole or not at all.

    ``report.json`` comes last: where it is, the job has its report.
    """
    private_folder(folder)
    write_whole(folder / "report.html", render(report).encode())
    write_whole(folder / "report.json", report.to_json().encode())


def attack_line(attacks: Mapping[str, float | None], judged: Mapping[str, int]) -> str:
    """:func:`~vfl_node.report.words.attack_figures` with the attacks' own titles."""
    return attack_figures(attacks, judged, {name: attack.title for name, attack in ATTACKS.usable(attacks)})


def _trainer_words(report: Report, train: TrainerConfig | None, peer: str) -> TrainingWords:
    """What the trainer says of itself; nothing where nothing was trained."""
    if train is None or report.training is None:
        return TrainingWords()
    parties, training = report.parties, report.training
    return training.section.words(
        ReportedTraining(
            train=train,
            party=report.party,
            role=report.role,
            peer=peer,
            active=parties.active,
            passive=join_names(parties.passive),
            coordinator=parties.coordinator,
            epochs=len(training.epochs),
            steps=training.steps,
            repeats=training.repeats,
        )
    )


@cache
def _environment() -> tuple[Environment, str]:
    """Templates, made once, and the style sheet."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.tests["code"] = lambda part: isinstance(part, Code)
    environment.filters |= {
        "anchor": anchor,
        "attacks": attack_line,
        "bytes": human_bytes,
        "change": results.CHANGES.__getitem__,
        "count": human_count,
        "duration": human_seconds,
        "difference": results.format_difference,
        "listed": join_names,
        "interval": results.format_interval,
        "metric": results.format_value,
        "time": human_time,
    }
    return environment, environment.get_template("style.css").render()


def csp_source(text: str) -> str:
    """How a content security policy names the inline style or script ``text``, and so allows no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _curves(report: dict[str, Any], unit: str) -> dict[str, Markup]:
    """Loss and AUC by ``unit``, as far as this party knows them; the AUC's axis ends at 1 and shows a tenth at least."""
    epochs = report["training"]["epochs"] if report["training"] else []
    drawn = {}
    for name, title, reach in (("loss", "Loss", ()), ("auc", "AUC", (0.9, 1.0))):
        rows = ((name, "training rows", "joint"), (f"validation_{name}", "validation rows", "alone"))
        if lines := [ChartLine(words, points, style) for key, words, style in rows if (points := _points(epochs, key))]:
            drawn[name] = line_chart(name, title, lines, unit=unit, last=len(epochs), reach=reach)
    return drawn


def _points(epochs: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """(number, value) of epochs that have a value of this name."""
    return [(number, epoch[name]) for number, epoch in enumerate(epochs, 1) if epoch.get(name) is not None]


def _audit(report: dict[str, Any], unit: str) -> dict[str, Any] | None:
    """This party's attacks on what it sent: a drawing, and for each its style, words, newest and mean AUC."""
    epochs = report["training"]["epochs"] if report["training"] else []
    styles = dict(zip(ATTACKS, cycle(ATTACK_STYLES), strict=False))
    names = [name for name, _ in ATTACKS.usable({name for epoch in epochs for name in epoch["attacks"]})]
    points = {name: _points([epoch["attacks"] for epoch in epochs], name) for name in names}
    lines = [ChartLine(ATTACKS[name].title, points[name], styles[name]) for name in names if points[name]]
    if not lines:
        return None
    means, most = report["training"]["audit"], report["training"]["max_attack_auc"]
    strongest = max((name for name in names if means.get(name) is not None), key=lambda name: fold(means[name]), default=None)
    last = epochs[-1]
    return {
        "drawing": line_chart(
            "audit", "AUC", lines, unit=unit, last=len(epochs), reach=(0.4, 0.6), chance=0.5, limit=most, height=200
        ),
        "attacks": [
            (
                ATTACKS[name].title,
                ATTACKS[name].reading,
                styles[name],
                last["attacks"].get(name),
                means.get(name),
                last.get("judged", {}).get(name),
            )
            for name in names
        ],
        "strongest": strongest and (ATTACKS[strongest].title, round(100 * fold(means[strongest]))),
        "limit": most,
    }


def fold(auc: float) -> float:
    """An AUC read the way round in which it tells more: .3 is as good as .7."""
    return max(auc, 1 - auc)


def _theirs(report: dict[str, Any], peers: Sequence[str]) -> dict[str, tuple[int | None, bool]]:
    """Peer → number of its records, and whether that is the most it can be."""
    theirs, padded = (report["alignment"][key] for key in ("theirs", "padded"))
    if isinstance(theirs, dict):
        return {name: (theirs[name], padded[name]) for name in peers}
    return dict.fromkeys(peers, (theirs, padded))


def _describe_alignment(report: Report, train: TrainerConfig | None, peer: str) -> ReportedAlignment:
    """The alignment, as the words about it need it."""
    parties, alignment = report.parties, report.alignment
    assert alignment is not None
    return ReportedAlignment(
        party=report.party,
        peer=peer,
        active=parties.active,
        passive=join_names(parties.passive),
        label_holder=train.label_holder if train else "active",
        several=len(report.parties.passive) > 1,
        rows=alignment.rows,
        intersection=alignment.intersection,
        union=alignment.union,
        padded=any(alignment.padded.values()) if isinstance(alignment.padded, dict) else alignment.padded,
        in_shares=alignment.comparison == "shares",
    )


def _alignment_words(figures: Mapping[str, Any], alignment: ReportedAlignment) -> dict[str, Any]:
    """What the protocol says of its alignment: its title, and paragraphs about rows, figures and what it reveals."""
    words = words_of(ALIGNMENTS[figures["protocol"]])
    return {
        "title": words.title,
        "rows": words.rows(alignment),
        "leaks": words.leaks(alignment),
        "figures": words.figures(figures),
    }


def _sizes(report: dict[str, Any], aligned: ReportedAlignment, peers: Sequence[str]) -> list[tuple[str, str]]:
    """Numbers of records and what they are of, the shared order's first."""
    alignment = report["alignment"]
    spec = ALIGNMENTS[alignment["protocol"]]
    common = [] if spec.every_row_is_shared or spec.by_similarity else [(human_count(alignment["intersection"]), "in common")]
    theirs = [
        (human_count(count), f"of {peer}{', at most' if padded else ''}")
        for peer, (count, padded) in _theirs(report, peers).items()
    ]
    ours = human_count(alignment["ours"]), f"of {aligned.party}"
    return [(human_count(alignment["rows"]), words_of(spec).rows_title(aligned)), *common, ours, *theirs]


def _sets(report: dict[str, Any], peers: Sequence[str]) -> Markup:
    """Each set as a bar whose place shows the overlap; from zero where the overlap is hidden, or of more than two."""
    alignment, sizes = report["alignment"], _theirs(report, peers)
    if len(peers) > 1:
        return _many_sets(report, sizes)
    ((peer, (theirs, padded)),) = sizes.items()
    assert theirs is not None  # an only peer has announced it
    ours, shared, common, most = alignment["ours"], alignment["rows"], alignment["intersection"], "at most " if padded else ""
    left = 0 if common is None else ours - common
    rows = [
        Row(report["party"], human_count(ours), (Bar(0, ours, "first"),)),
        Row(peer, f"{most}{human_count(theirs)}", (Bar(left, left + theirs, "second"),)),
    ]
    spec = ALIGNMENTS[alignment["protocol"]]
    if spec.by_similarity:
        return charts.bar_chart("sets", SETS_TITLE, rows)
    if spec.is_within_one_set:
        title = f"shared order ({spec.shared_rows.removeprefix('the ')})"
        rows.append(Row(title, human_count(shared), (Bar(left, left + shared, "joint"),)))
    elif common is None:
        rows.append(Row("shared order", human_count(shared), (Bar(0, shared, "joint"),)))
        rows.append(Row("both together (union)", "hidden", ()))
    else:
        union = ours + theirs - common
        rows.append(Row("both together (union)", f"{most}{human_count(union)}", (Bar(0, union, "joint"),)))
    bars = () if common is None else (Bar(left, ours, "joint"),)
    rows.append(Row("in common (intersection)", human_count(common), bars))
    guides = [left, ours] if common else []
    return charts.bar_chart("sets", SETS_TITLE, rows, guides=guides)


def _many_sets(report: dict[str, Any], theirs: Mapping[str, tuple[int | None, bool]]) -> Markup:
    """The sizes of more than two sets, and of what they make together: how they overlap would take more than a line."""
    alignment = report["alignment"]
    rows = [Row(report["party"], human_count(alignment["ours"]), (Bar(0, alignment["ours"], "first"),))]
    for peer, (count, padded) in theirs.items():
        most = "at most " if padded and count is not None else ""
        rows.append(Row(peer, f"{most}{human_count(count)}", _count_bar(count, "second")))
    for title, together in (
        ("all together (union)", alignment["union"]),
        ("in common (intersection)", alignment["intersection"]),
    ):
        rows.append(Row(title, human_count(together), _count_bar(together, "joint")))
    return charts.bar_chart("sets", SETS_TITLE, rows)


def _count_bar(count: int | None, style: str) -> tuple[Bar, ...]:
    """A bar of so many records; none where the number is hidden."""
    return () if count is None else (Bar(0, count, style),)


def _traffic(report: dict[str, Any]) -> Markup:
    rows = [
        Row(
            phase,
            f"{human_bytes(sent['bytes_sent'])} · {human_bytes(sent['bytes_received'])}",
            (Bar(0, sent["bytes_sent"], "first"), Bar(0, sent["bytes_received"], "second")),
        )
        for phase, sent in report["phases"].items()
    ]
    return charts.bar_chart("traffic", "Bytes sent and received in each phase", rows)


def _settings(spec: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Section of the job → its settings as (name, YAML value)."""
    sections = [
        "align",
        *(("train", "evaluate") if spec["train"] else ()),
        *(name for name in ("serve", "predict") if spec[name]),
    ]
    leaves = {section: _leaves(section, spec[section]) for section in sections}
    return {section: [(name.removeprefix(f"{section}."), text) for name, text in keys] for section, keys in leaves.items()}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value).replace('"', "")
