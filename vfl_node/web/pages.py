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
from vfl_node.report import page, words
from vfl_node.web import compare
from vfl_node.web.view import NodeView

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"

MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

NO_FRAMES = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

POLICY = f"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; {NO_FRAMES}"
"""The board's own pages run and load what this node serves, and nothing that stands in the page itself."""

REPORT_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; {NO_FRAMES}"
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
        self._templates.filters |= {**lines, "time": words.human_time}
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

    def jobs(self, node: dict[str, Any], jobs: list[dict[str, Any]]) -> HTMLResponse:
        """The list of all jobs of a node, of which ``node`` is the health."""
        return self._render("jobs.html.j2", place="jobs", node=node, jobs=jobs)

    def job(self, node: dict[str, Any], job: dict[str, Any]) -> HTMLResponse:
        """One job."""
        return self._render("job.html.j2", place="", node=node, job=job)

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

    def login(self, status: int) -> HTMLResponse:
        """The page for a browser without access: it posts the ticket after ``#``, if there is one."""
        return self._render("login.html.j2", status)

    def _render(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        html = self._templates.get_template(template).render(**values)
        return HTMLResponse(html, status, headers={"Content-Security-Policy": POLICY})
