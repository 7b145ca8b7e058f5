"""What a trial left: figures, tables and reports of every party."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from csv import reader
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from vfl_node.errors import UsageError
from vfl_node.process.files import write_whole

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

    from vfl_node.api.frames import Given
    from vfl_node.export.exporting import Form
    from vfl_node.settings.node import Data

PREDICTIONS = "predictions.csv"

_DRAWING = re.compile(r'<svg ([^>]*aria-labelledby="(.+?)-title[^>]*)>(.*?)</svg>', re.DOTALL)
_CURVES = re.compile(r'<figure class="chart" id="(.+?)-curve" ([^>]*)>(<svg height="(\d+)">.*?)</figure>', re.DOTALL)
"""Both kinds of drawings of a report: those that fill a width of their own, and curves, which fit any."""

_PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" class="vfl-node" {about}><style>{rules}</style>{drawing}</svg>'

_FRAME = '<iframe srcdoc="{page}" sandbox="" style="width:100%;height:{height}px;border:0" title="Report of {party}"></iframe>'

_BASE = '<base href="about:srcdoc">'
"""Links of the page lead to its own words: without it a browser would open the notebook in the frame."""


class Picture:
    """One chart of a report as an image that needs no other file; a notebook shows it.

    Attributes:
        svg: the whole file.
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def __repr__(self) -> str:
        return f"Picture({len(self.svg)} bytes of SVG)"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write it as an SVG file."""
        return _write(Path(path), self.svg.encode())


class ReportPage:
    """The report of one party, which a notebook shows as the page that it is.

    Calling it gives the page of another party: ``result.report("lab")``; without a name itself.

    Attributes:
        party: whose report it is.
        figures: all of ``report.json`` (docs/reference/report.md).
        page: ``report.html``: no script, and nothing is loaded from elsewhere.
    """

    def __init__(self, party: str, folder: Path, result: Result) -> None:
        self.party, self._result = party, result
        self.figures: dict[str, Any] = json.loads((folder / "report.json").read_text())
        self.page = (folder / "report.html").read_text()

    def __call__(self, party: str = "") -> ReportPage:
        """The report of another party, by its name or role. Raises UsageError as :meth:`Result.party_of`."""
        return self._result.reports[self._result.party_of(party or self.party)]

    def __repr__(self) -> str:
        return f"Report of {self.party} ({len(self.page)} bytes; report.save(path) writes it)"

    def _repr_html_(self, height: int = 760) -> str:
        """In a frame without rights: the page's style stays in it, and nothing in it runs."""
        page = self.page.replace("<head>", f"<head>{_BASE}", 1)
        return _FRAME.format(page=html.escape(page, quote=True), height=height, party=html.escape(self.party))

    def save(self, path: str | Path) -> Path:
        """Write the page to ``path``; returns it."""
        return _write(Path(path), self.page.encode())

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The charts of the page by name, such as ``loss`` and ``auc``."""
        style = re.search(r"<style>(.*?)</style>", self.page, re.DOTALL)
        rules = _chart_rules(style[1]) if style else ""
        found = {name: (about, drawing) for about, name, drawing in _DRAWING.findall(self.page)}
        for name, about, drawing, height in _CURVES.findall(self.page):
            box = f'viewBox="0 0 420 {int(height) + 20}" font-size="12" {about}'
            found[name] = box, drawing.replace("<svg", '<svg x="40" y="10" width="336" overflow="visible"', 1)
        return {name: Picture(_PICTURE.format(about=about, rules=rules, drawing=it)) for name, (about, it) in found.items()}


class Result:
    """A trial that has ended.

    What one party may know and another may not is told apart here as in the parties' own reports: ``metrics``,
    ``local_metrics`` and ``epochs`` are the active party's, ``report("lab")`` is the lab's.

    Attributes:
        folder: where the active party's artefacts lie, and in it a folder for each other party. It is removed with this object
            unless it was named (``run(out=…)``).
        parties: names: active, then passive, then coordinator.
        reports: party → its report.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        *,
        scratch: Path | None = None,
        tables: Mapping[str, Given] | None = None,
        models: Mapping[str, str] | None = None,
        sources: Mapping[str, Data] | None = None,
    ) -> None:
        self._folders, self._tables, self._models = dict(folders), dict(tables or {}), dict(models or {})
        self._sources = dict(sources or {})
        if scratch:
            finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        self.parties = tuple(folders)
        self.folder = next(iter(folders.values()))
        self.reports = {party: ReportPage(party, folder, self) for party, folder in folders.items()}

    def __repr__(self) -> str:
        figures = "; ".join(filter(None, (_line("federated", self.metrics), _line("alone", self.local_metrics))))
        doubts = f"; {len(self.warnings)} warnings" if self.warnings else ""
        return f"Result({figures or 'aligned'}{doubts}; folder {str(self.folder)!r})"

    def party_of(self, name_or_role: str) -> str:
        """The party with this name or role.

        Raises:
            UsageError: the job has none, or several have the role.
        """
        roles = {party: report.figures["role"] for party, report in self.reports.items()}
        parties = [party for party, role in roles.items() if name_or_role in (party, role)]
        if len(parties) != 1:
            raise UsageError(f"{name_or_role!r} is not one party of this job", hint=f"parties: {', '.join(self.parties)}")
        return parties[0]

    @property
    def report(self) -> ReportPage:
        """The active party's report; ``result.report("lab")`` is another's."""
        return self.reports[self.parties[0]]

    @property
    def verdict(self) -> dict[str, Any] | None:
        """``verdict`` of the active party's report: whether it helped, and what others can tell. None without a training."""
        verdict: dict[str, Any] | None = self.report.figures["verdict"]
        return verdict

    @property
    def metrics(self) -> dict[str, Any] | None:
        """``metrics`` of the active party's report: of the federated model on held-out rows. None if nothing was measured."""
        metrics: dict[str, Any] | None = self.report.figures["metrics"]
        return metrics

    @property
    def local_metrics(self) -> dict[str, Any] | None:
        """``local_metrics`` of the active party's report: of its own model on the same rows. None without one."""
        metrics: dict[str, Any] | None = self.report.figures["local_metrics"]
        return metrics

    @property
    def local_aligned_metrics(self) -> dict[str, Any] | None:
        """As ``local_metrics``, of the same model by aligned rows alone; None where ``train.unaligned`` is not used."""
        metrics: dict[str, Any] | None = self.report.figures["local_aligned_metrics"]
        return metrics

    @property
    def boosted_tree_metrics(self) -> dict[str, Any] | None:
        """``boosted_tree_metrics`` of the active party's report: of a boosted tree on its own columns. None without one."""
        metrics: dict[str, Any] | None = self.report.figures["boosted_tree_metrics"]
        return metrics

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """A row for each epoch or iteration, for ``pandas.DataFrame(result.epochs)``; nested keys are joined by a dot."""
        training = self.report.figures["training"]
        return [{"epoch": number} | dict(_flatten(row)) for number, row in enumerate(training["epochs"] if training else (), 1)]

    @property
    def trials(self) -> list[dict[str, Any]]:
        """A row for each trial of a sweep, for ``pandas.DataFrame(result.trials)``; empty without a sweep.

        It has the trial's settings, its figures on validation rows, and whether it was chosen.
        """
        tried = (self.report.figures["training"] or {}).get("trials") or ()
        return [dict(_flatten(trial)) for trial in tried]

    @property
    def warnings(self) -> list[str]:
        """Sentences of the active party's report about what may be wrong with the alignment or the training."""
        sections = (self.report.figures["alignment"], self.report.figures["training"])
        return [sentence for section in sections if section for sentence in section["warnings"]]

    @property
    def learnt(self) -> list[dict[str, Any]]:
        """A row for each thing that a party learnt, with its numbers: party, what, count, text (docs/reference/report.md)."""
        return [
            {"party": party, **entry} for party, report in self.reports.items() for entry in report.figures["learnt"][party]
        ]

    @property
    def networks(self) -> dict[str, str]:
        """Name → ``module:Class`` of the owners' own networks that the trial was given."""
        return dict(self._models)

    @property
    def model(self) -> dict[str, Path]:
        """Party → file of its half of the model (safetensors); parties without one are left out."""
        paths = {party: folder / "model.safetensors" for party, folder in self._folders.items()}
        return {party: path for party, path in paths.items() if path.exists()}

    def weights(self, party: str = "active") -> dict[str, Tensor]:
        """Name → tensor of a party's half of the model.

        Raises:
            UsageError: it has none.
        """
        from vfl_node.models import storage

        name = self.party_of(party)
        if name not in self.model:
            raise UsageError(f"{name} has no part of a model", hint="a job that only aligns trains none")
        return storage.load(self.model[name])[0]

    def export(self, folder: str | Path, *, forms: Collection[Form] = ()) -> dict[str, list[Path]]:
        """Write each party's half into a folder of its own below ``folder``, so that it works without this product.

        Every file is compared with the model, on 1,000 rows of the party's table and on made-up ones, before it is written.

        Args:
            folder: made where there is none.
            forms: ``onnx``, ``sql`` and ``card``, or some of them; none: a model, a card, and SQL where that is possible.

        Returns:
            Party → its files.

        Raises:
            UsageError: a half cannot be written so, or there is no such form (``E_EXPORT``); or ``onnx`` or ``onnxruntime`` is
                not installed (``E_EXTENSION``).
        """
        from vfl_node.data.columns_apart import make_tuple
        from vfl_node.export.exporting import export_folder
        from vfl_node.export.reading import open_given

        opened = {party: open_given(table, party) for party, table in self._tables.items()}
        return {
            party: export_folder(
                self._folders[party],
                Path(folder) / party,
                forms=forms,
                table=opened.get(party),
                ids=make_tuple(self._sources[party].id) if party in self._sources else ("id",),
                models=self._models,
                source=self._sources.get(party),
            )
            for party in self.model
        }

    def predict(self, *, id_column: str | Sequence[str] = "id", **tables: Given) -> pa.Table:
        """What the model says of records that all given tables have: an Arrow table, as of :attr:`predictions`.

        Args:
            id_column: what identifies a record, in every table; several of composite ids.
            tables: party, or role where one party has it, → its table: ``predict(active=clinic, passive=lab)``, with as many
                rows a record as in the training. A line is given for each record of the party with the labels; it is empty
                where another table lacks the record.

        Raises:
            UsageError: a table is missing, or the model has no halves that predict in one place (``E_EXPORT``).
            DataError: a table lacks a column of the model, or cannot be read.
        """
        from vfl_node.export.folders import open_folder
        from vfl_node.export.joining import score_jointly

        halves = [open_folder(self._folders[party], self._models)[0] for party in self.model]
        ids = (id_column,) if isinstance(id_column, str) else tuple(id_column)
        return _read_csv(BytesIO(score_jointly(halves, tables, ids=ids, sources=self._sources).csv), ids)

    @property
    def predictions(self) -> pa.Table:
        """What the model says of the active party's shared rows, an Arrow table (``.to_pandas()``); ids are text.

        Columns: the id columns; ``rows``: ``held_out``, ``validated`` or ``trained``; ``label``; ``probability``, or one for
        each class, or ``prediction`` of a regression; where classes have names ``class``, the predicted one.

        Raises:
            UsageError: none were made.
        """
        path = self.folder / PREDICTIONS
        if not path.exists():
            raise UsageError("this trial made no predictions", hint="run(…, predictions=True)")
        with path.open(newline="") as file:
            names = next(reader(file))
        return _read_csv(path, names[: names.index("rows")])


def _read_csv(file: Path | BytesIO, ids: Sequence[str]) -> pa.Table:
    from pyarrow import csv, string

    return csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=dict.fromkeys(ids, string())))


def _write(path: Path, content: bytes) -> Path:
    try:
        write_whole(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", code="E_FILE") from None
    return path


def _flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _line(title: str, metrics: Mapping[str, Any] | None) -> str:
    if not metrics:
        return ""
    measured = metrics.get("repeats") or {}
    return f"{title}: " + ", ".join(f"{name} {metrics[name]:.4f}" for name in measured if metrics.get(name) is not None)


def _chart_rules(style: str) -> str:
    """The rules of the page's style sheet for charts, which hold in their own image only, wherever it is inlined."""
    colours = re.search(r":root\s*{(.*?)}", style, re.DOTALL)
    rules = [line for line in style.splitlines() if line.startswith("svg ") or "{ --series: " in line]
    charts = "\n".join(re.sub(r"^(?=\.)|svg ", "svg.vfl-node ", line) for line in rules)
    own = "overflow: visible; background: #fff; font-family: system-ui, sans-serif; width: 100%; max-width: 28rem;"
    light = re.sub(r"light-dark\((.+?), .+?\)", r"\1", colours[1].strip()) if colours else ""
    return f"svg.vfl-node {{ {light} {own} }}\n{charts}".replace("light dark", "light")
