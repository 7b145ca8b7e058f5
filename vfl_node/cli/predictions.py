"""The command that gets predictions from a model of this node and its peers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from vfl_node.cli.shared import app, check_writable, client_of, err, follow, out, writing
from vfl_node.errors import UsageError
from vfl_node.node.states import UNFINISHED
from vfl_node.process.files import write_whole
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.terminal import ShownProgress

RESTART_S = 60.0
"""How long the command waits for a node that is restarted during a prediction."""


@app.command()
def predict(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job that trained the model, with `serve`.")],
    data: Annotated[Path, typer.Option(help="CSV file with the ids of the records; with --align also their columns.")],
    target: Annotated[Path, typer.Option("--out", help="CSV file to write: ids and probabilities, or numbers.")],
    config: Annotated[Path, typer.Option(help="The node's configuration file.")],
    align: Annotated[
        bool,
        typer.Option(
            "--align",
            help="The records are new: intersect them with the other parties' first. All learn which records they share.",
        ),
    ] = False,
) -> None:
    """Get predictions from the model of a job, which this node and its peers compute together."""
    try:
        request = data.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror}", code="E_FILE") from None
    check_writable(target, "--out")
    settings = load_settings(config)
    client_of(settings).job(job_id)  # fail at once if the node does not run, or does not know the job
    answer = _predict_new(settings, job_id, request) if align else _predict_known(settings, job_id, request)
    with writing(target, "--out"):
        write_whole(target, answer)
    out.print(f"wrote {target}")


def _predict_known(settings: Settings, model: str, request: bytes) -> bytes:
    """Predictions of known records; the same request gets the same answer again."""
    sections = [{"model": model, "to": to, "rows": "known"} for to in (settings.role, settings.name)]
    with ShownProgress(model) as shown:

        def ask(client: Any) -> bytes:
            def look() -> None:
                views = (view for view in client.jobs() if view["predict"] in sections and view["state"] in UNFINISHED)
                for view in islice(views, 1):
                    shown.update(view)

            return client.predict(model, request, look)

        return _ask_patiently(settings, ask)


def _predict_new(settings: Settings, model: str, request: bytes) -> bytes:
    """Predictions of new records, which are a separate job."""
    err.print("aligning by psi: all parties learn which of these records they share")
    try:
        job_id = client_of(settings).predict_new(model, request)["id"]
    except UsageError as error:
        if error.code == "E_NOT_RUNNING":
            error.hint = "the job may have begun: see `vfl-node jobs` before you ask again"
        raise
    err.print(f"{job_id} goes on if this command is interrupted")

    def fetch(client: Any) -> bytes:
        follow(client, job_id)
        return client.predictions(job_id)

    return _ask_patiently(settings, fetch)


def _ask_patiently(settings: Settings, ask: Callable[[Any], bytes]) -> bytes:
    """What ``ask`` gets from the node; if the node is restarted in between, ``ask`` is called again."""
    while True:
        try:
            return ask(client_of(settings))
        except UsageError as error:
            if error.code != "E_NOT_RUNNING":
                raise
            _await_node(settings, error)


def _await_node(settings: Settings, lost: UsageError) -> None:
    limit = time.monotonic() + RESTART_S
    while time.monotonic() < limit:
        time.sleep(0.5)
        with suppress(UsageError):
            client_of(settings).health()
            return
    raise lost
