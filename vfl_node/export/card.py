"""The card of an exported half: what a reader must know of the model, from its report. No cell, level or id stands in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vfl_node.data.bins import Cuts, Sorts
from vfl_node.data.levels import Levels
from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.data.transforms import Quantile, SignedLog, Unscaled
from vfl_node.export.checks import BOUND, SelfCheck
from vfl_node.halves.half import OwnHalf
from vfl_node.settings.aggregate import COUNT_OF
from vfl_node.settings.declared import kind_of
from vfl_node.version import VERSION

HOLDS: Mapping[str, str] = {
    "weights": "the weights of this party's half",
    "quantiles": "quantiles of its columns of numbers, which are cells of its table",
    "levels": "levels of its categories, which are cells of its table",
    "evidence": "weights of evidence: how labels of shared records lie in the bins of its columns",
    "means": "means and deviations of its columns",
    "classes": "the names of the classes",
}
"""What may be in a file → in words."""

LIMITS = (
    "It predicts records that all parties have. What a node does for records that a party lacks is not in it.",
    "Noise that a passive party's defences add to what it sends is not in it.",
    "Whoever has the halves of all parties predicts any record any number of times: no budget counts it and no ledger has it.",
    "It says what the model said on the day of training. Nothing tells it that the tables have changed since.",
)
"""What a reader must know of any exported half."""

_HAVE_CELLS = (Cuts, Quantile, QuantileLevels, SignedLog)
"""How numbers are encoded by some of the cells: the unit of a logarithm is the size of one."""

_FIGURES = ("metrics", "local_metrics", "gains")


@dataclass(frozen=True)
class ExportedFile:
    """A file of an export.

    Attributes:
        name: of the file.
        sha256: hexadecimal.
        size: in bytes.
    """

    name: str
    sha256: str
    size: int


def describe(
    report: Mapping[str, Any], half: OwnHalf, files: Sequence[ExportedFile], checked: SelfCheck | None
) -> dict[str, Any]:
    """``card.json``.

    Args:
        report: of the party, as ``report.json`` has it.
        half: that was exported.
        files: of the export.
        checked: the self-check; None where no model was written.
    """
    spec, training, about = report["job"]["spec"], report["training"], half.about
    alignment = report.get("alignment") or {}
    kinds = [kind_of(declared) for declared in about.reads.values()]
    return {
        "format": 1,
        "party": about.party,
        "role": about.role,
        "job": {key: report["job"][key] for key in ("id", "name", "manifest_digest")},
        "trained": {"by": training["algorithm"], "finished": report["finished"], "settings": spec["train"]},
        "data": {
            "records": alignment.get("ours"),
            "shared": alignment.get("intersection"),
            "align": spec["align"]["protocol"],
            "columns": {str(kind): kinds.count(kind) for kind in dict.fromkeys(kinds)},
            "rows": training["rows"],
            "task": about.task,
        },
        "split": spec["evaluate"],
        **{name: _figures(report.get(name), spec["evaluate"]["metrics"]) for name in _FIGURES},
        "leaks": {name: dict(meter) for name, meter in (report.get("meters") or {}).items() if meter},
        "defences": (training.get("split") or {}).get("defences", []),
        "warnings": _hide_values([*alignment.get("warnings", []), *training["warnings"]], about.counted),
        "check": None if checked is None else {**asdict(checked), "bound": BOUND},
        **_contents(half, files),
    }


def describe_to(half: OwnHalf, files: Sequence[ExportedFile]) -> dict[str, Any]:
    """``card.json`` for another party: what the job and the files tell anyway, and no figure, count of records or defence."""
    about = half.about
    return {
        "format": 1,
        "party": about.party,
        "role": about.role,
        "job": {"id": about.job, "manifest_digest": about.manifest_digest},
        **_contents(half, files),
    }


def _contents(half: OwnHalf, files: Sequence[ExportedFile]) -> dict[str, Any]:
    """What any card has of the files."""
    about = half.about
    return {
        "exported_by": VERSION,
        "reads": {name: str(kind_of(declared)) for name, declared in about.reads.items() if name not in about.counted},
        "counts": dict(Counter(about.counted.values())),
        "gives": about.gives,
        "needs": list(about.others),
        "holds": [HOLDS[name] for name in held(half)],
        "limits": list(LIMITS),
        "files": {each.name: {"sha256": each.sha256, "bytes": each.size} for each in files},
    }


def held(half: OwnHalf) -> list[str]:
    """What of :data:`HOLDS` is in the files."""
    ways = [getattr(each, "transform", each) for each in half.encodings]
    found = {
        "weights": True,
        "evidence": any(isinstance(way, Cuts | Sorts) for way in ways),
        "quantiles": any(isinstance(way, _HAVE_CELLS) or (isinstance(way, Unscaled) and way.start) for way in ways),
        "levels": bool(half.about.counted)
        or any(isinstance(way, Sorts) or (isinstance(way, Levels) and way.part is None) for way in ways),
        "means": any(getattr(way, "method", None) in ("standard", "log", "unit") for way in ways),
        "classes": bool(half.about.classes),
    }
    return [name for name, there in found.items() if there]


def _hide_values(sentences: Sequence[str], counted: Mapping[str, str]) -> list[str]:
    """Sentences of a report, in which the name of a column that counts a value becomes ``shop_count_…``."""
    for name in sorted(counted, key=len, reverse=True):
        shown = COUNT_OF.format(counted[name], "…")
        sentences = [each.replace(repr(name)[1:-1], shown).replace(name, shown) for each in sentences]
    return list(sentences)


def to_json(card: Mapping[str, Any]) -> bytes:
    """The card as a file."""
    return (json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def to_markdown(card: Mapping[str, Any]) -> bytes:
    """The card for people."""
    data, job = card["data"], card["job"]
    columns = ", ".join(f"{count} {kind}" for kind, count in data["columns"].items()) or "none"
    rows = ", ".join(f"{count:,} {name}" for name, count in data["rows"].items())
    parts = [
        f"# {job['name']}: the half of {card['party']}",
        "",
        f"Trained by `{card['trained']['by']}` in job `{job['id']}`, {card['trained']['finished']}.",
        f"Manifest digest `{job['manifest_digest']}`.",
        *_section("Data", [_counted("records", data["records"]), _counted("shared records", data["shared"])]),
        f"- columns: {columns}",
        *(f"- {count:,} of them count the rows with one value of {name}" for name, count in card["counts"].items()),
        f"- rows of training: {rows}",
        f"- aligned by `{data['align']}`",
        *_section("Measured", _measured(card) or ["nothing was measured at this party"]),
        *_section(
            "What others can tell", [f"{name}: {_meter(meter)}" for name, meter in card["leaks"].items()] or ["not measured"]
        ),
        *_section("Defences in training", [f"`{each}`" for each in card["defences"]] or ["none of this party"]),
        *_section("Warnings of the report", card["warnings"] or ["none"]),
        *_section("These files hold", card["holds"]),
        *_section("Limits", card["limits"]),
        *_section(
            "Files", [f"`{name}`, {file['bytes']:,} bytes, SHA-256 `{file['sha256']}`" for name, file in card["files"].items()]
        ),
    ]
    if checked := card["check"]:
        parts += _section(
            "Self-check",
            [
                f"{checked['own_rows']:,} rows of the table and {checked['probes']:,} made-up ones: the largest difference "
                f"from the model is {checked['difference']:.1e}, and {checked['bound']:.0e} is allowed"
            ],
        )
    return ("\n".join(parts) + "\n").encode()


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *(f"- {line}" for line in lines)]


def _counted(what: str, count: int | None) -> str:
    return f"{what}: {'not known here' if count is None else f'{count:,}'}"


def _figures(found: Mapping[str, Any] | None, wanted: Sequence[str]) -> dict[str, Any] | None:
    """Metrics with their intervals, or gains, as a report has them; null where it has none, and for an unknown end."""
    if not found:
        return None
    is_gain = "intervals" not in found
    intervals = found if is_gain else found["intervals"] or {}
    values = {name: (intervals.get(name) or {}).get("mean") if is_gain else found.get(name) for name in wanted}
    return {
        name: {"value": value, **{end: (intervals.get(name) or {}).get(end) for end in ("low", "high")}}
        for name, value in values.items()
        if value is not None
    }


def _measured(card: Mapping[str, Any]) -> list[str]:
    titles = {"metrics": "federated", "local_metrics": "this party alone", "gains": "gain"}
    return [
        f"{titles[kind]} {name}: {_number(each['value'])} ({_number(each['low'])} to {_number(each['high'])})"
        for kind in _FIGURES
        for name, each in (card[kind] or {}).items()
    ]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _meter(meter: Mapping[str, Any]) -> str:
    value = "" if meter["value"] is None else f", {meter['value']:.2f} by {meter['attack']}"
    return f"{meter['level'].replace('_', ' ')}{value}{'. ' + meter['why'] if meter['why'] else ''}"
