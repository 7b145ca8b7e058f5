"""The HTML pages of the board, with the policy that lets them run only what this node serves, and those files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from vfl_node.errors import UsageError
from vfl_node.report import page, results, terms, words
from vfl_node.web import compare, overview
from vfl_node.web.view import NodeView
from vfl_node.web.wanted import Wanted

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"

MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The board's own pages run, load and ask for what this node serves, and run nothing that stands in the page itself."""

REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The policy that a report is served with; the one that the report itself has is narrower."""

MOST_COLUMNS = 10
"""Columns that are rebuilt and shown while a job runs; its JSON has all."""


class Pages:
    """The pages, rendered."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader([TEMPLATES, page.TEMPLATES]),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        rebuilt = partial(words.rebuilt_figures, most=MOST_COLUMNS)
        lines = {"attacks": page.attack_line, "rebuilt": rebuilt, "labels": words.label_figures}
        figures = {
            "metric": results.format_value,
            "interval": results.format_interval,
            "budgets": overview.budget_groups,
            "used": overview.used_lines,
            "span": words.human_span,
        }
        self._templates.filters |= {**lines, **figures, "time": words.human_time, "age": words.human_age}
        self._templates.filters |= {"duration": words.human_seconds, "bytes": words.human_bytes, "names": words.join_names}
        self._templates.filters |= {"anchor": terms.anchor, "limit": lambda name: overview.TITLES.get(name, name)}
        self._templates.globals["metric_titles"] = {name: title for name, (title, *_) in results.METRICS.items()}
        self._templates.globals["terms"] = terms.TERMS
        style = (page.TEMPLATES / "style.css").read_bytes()
        files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in MEDIA_TYPES}
        files["board.css"] = style + files["board.css"]
        self._places = {name: f"{hashlib.sha256(content).hexdigest()[:12]}-{name}" for name, content in files.items()}
        self._files = {self._places[name]: content for name, content in files.items()}
        self._templates.globals["asset"] = lambda name: f"/static/{self._places[name]}"

    def asset(self, place: str) -> Response | None:
        """A style sheet or script, whose address changes with its content; None if there is no such file."""
        if place not in self._files:
            return None
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(self._files[place], media_type=MEDIA_TYPES[Path(place).suffix], headers=headers)

    def jobs(
        self,
        node: dict[str, Any],
        wanted: Wanted,
        found: dict[str, Any],
        waiting: dict[str, Any],
        *,
        asks: Sequence[dict[str, Any]],
        extensions: Sequence[dict[str, Any]],
    ) -> HTMLResponse:
        """The overview: how the node is, the jobs that are wanted, and those that wait.

        Args:
            node: its health.
            wanted: of the jobs.
            found: of those, what the node has.
            waiting: the same of those that have waited for longest.
            asks: the jobs that wait for the owner.
            extensions: requests for more of a budget.
        """
        values: dict[str, Any] = {"node": node, "wanted": wanted, "found": found, "waiting": waiting}
        return self._render("jobs.html.j2", place="jobs", asks=asks, extensions=extensions, **values)

    def job(self, view: NodeView, job: dict[str, Any]) -> HTMLResponse:
        """One job of ``view``; if it waits for the owner, what it asks for. Raises VflError if that cannot be read."""
        if job["state"] == "asked":
            return self._render("asked.html.j2", place="", node=view.health(), job=job, asked=view.show(job["id"]))
        return self._render("job.html.j2", place="", node=view.health(), job=job)

    def compare(self, view: NodeView, ids: Sequence[str]) -> HTMLResponse:
        """Jobs of ``view`` side by side; where they cannot be compared what to do, and jobs to choose from."""
        found, problem = None, None
        try:
            found = compare.comparison(view, ids)
        except UsageError as error:
            problem = error
        chosen = compare.links(view.jobs(), ids)
        values = {"node": view.health(), "found": found, "problem": problem, **chosen}
        return self._render("compare.html.j2", 400 if problem else 200, place="compare", **values)

    def ledger(self, view: NodeView) -> HTMLResponse:
        """The ledger with each partner of ``view``."""
        return self._render(
            "ledger.html.j2", place="ledger", node=view.health(), ledgers=view.ledgers(), extensions=view.extensions.list()
        )

    def login(self, status: int) -> HTMLResponse:
        """The page for a browser without access: it posts the ticket after ``#``, if there is one."""
        return self._render("login.html.j2", status)

    def _render(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        html = self._templates.get_template(template).render(**values)
        return HTMLResponse(html, status, headers={"Content-Security-Policy": POLICY})
