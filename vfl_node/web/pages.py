"""The HTML pages of the board, each with the policy that lets it run only its own style and script."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from vfl_node.report import page, words

TEMPLATES = Path(__file__).parent / "templates"

NO_FRAMES = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

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
        style = self._templates.get_template("style.css.j2").render() + self._templates.get_template("board.css.j2").render()
        script = self._templates.get_template("refresh.js.j2").render()
        self._shared = {"style": Markup(style), "script": Markup(script)}  # noqa: S704 - our own files
        self._style_policy = f"default-src 'none'; style-src {page.csp_source(style)}"
        self._policy = f"{self._style_policy}; script-src {page.csp_source(script)}; connect-src 'self'; {NO_FRAMES}"

    def jobs(self, node: dict[str, Any], jobs: list[dict[str, Any]]) -> HTMLResponse:
        """The list of all jobs of a node, of which ``node`` is the health."""
        return self._render("jobs.html.j2", node=node, jobs=jobs)

    def job(self, node: dict[str, Any], job: dict[str, Any]) -> HTMLResponse:
        """One job."""
        return self._render("job.html.j2", node=node, job=job)

    def login(self, status: int) -> HTMLResponse:
        """The page for a browser without access: it posts the ticket after ``#``, if there is one."""
        script = Markup(self._templates.get_template("login.js.j2").render())  # noqa: S704 - our own file
        html = self._templates.get_template("login.html.j2").render(style=self._shared["style"], script=script)
        policy = f"{self._style_policy}; script-src {page.csp_source(script)}; connect-src 'self'; {NO_FRAMES}"
        return HTMLResponse(html, status, headers={"Content-Security-Policy": policy})

    def _render(self, template: str, **values: Any) -> HTMLResponse:
        html = self._templates.get_template(template).render(**values, **self._shared)
        return HTMLResponse(html, headers={"Content-Security-Policy": self._policy})
