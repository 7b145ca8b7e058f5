"""``vfl-node audit-wire``: what a node has sent and received in a job, and what a machine on the way could read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Table

from vfl_node.cli.shared import JsonOption, app, client_of, err, out, print_json, print_table
from vfl_node.errors import UsageError
from vfl_node.execution.outcome import JobOutcome
from vfl_node.job import load_job
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings

FOUND, BLIND = 1, 4
"""Exit status where something was found, and where the search itself does not find what it must."""


@app.command(name="audit-wire")
def audit_wire(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of a job; or a job file, which is submitted.")],
    config: Annotated[Path, typer.Option("--config", help="The node's configuration file, with audit: {wire: true}.")],
    pcap: Annotated[Optional[Path], typer.Option(help="With a job file, as root: also look at packets; kept here.")] = None,  # noqa: UP045
    control: Annotated[bool, typer.Option("--control", help="Say what the search found of what it must find.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what was sent and received in a job, and search it for values of this node's table.

    It proves that nothing readable passed those on the way, and that no searched value went in clear to the peer. It does not
    prove that masked values are safe. Exit status: 0 nothing found, 1 something found or not looked at, 4 the search is blind.
    """
    from vfl_node.node.wire import compare_bytes, read_wire  # loads numpy and Arrow
    from vfl_node.node.wire_audit import list_controls

    settings = load_settings(config)
    if not settings.audit.wire:
        hint = f"audit: {{wire: true}} in {config}, then restart the node"
        raise UsageError("this node does not look through its messages", code="E_CONFIG", hint=hint)
    seen = list_controls(outer=pcap is not None)
    for what, found in seen.items():
        if control or not found:
            err.print(f"control: {what}: {'found' if found else 'NOT FOUND'}")
    if not all(seen.values()):
        raise typer.Exit(BLIND)
    is_file = job.endswith((".yaml", ".yml", ".json")) or Path(job).is_file()
    if pcap is not None and not is_file:
        raise UsageError("--pcap looks while a job runs", hint="name a job file, which is then submitted")
    outside: list[str] = []
    job_id, size = _run(settings, Path(job), pcap, outside) if is_file else (job, 0)
    runs = read_wire(JobOutcome(settings.state_dir / "jobs" / job_id))
    if not runs:
        raise UsageError(f"nothing was looked at in job {job_id}", code="E_UNKNOWN_JOB", hint="it ran without audit.wire")
    flows = [flow for run in runs for flow in run["flows"]]
    inner, uncounted = sum(flow["bytes"] for flow in flows), list(map(compare_bytes, runs))
    if pcap is not None and size < inner:
        outside.append(f"only {size:,} of {inner:,} bytes passed where packets were seen")
    if as_json:
        print_json({"job": job_id, "runs": runs, "bytes": inner, "uncounted": uncounted, "outside": outside})
    else:
        _show(runs, flows)
        for run, more in zip(runs, uncounted, strict=True):
            out.print(_compare(run, more))
        for fault in outside:
            out.print(f"on the way: {fault}")
        if pcap is not None and not outside:
            out.print(f"on the way: {size:,} bytes of TLS 1.3, and no value of this node's table")
    if outside or any(uncounted) or any(flow["found"] for flow in flows):
        raise typer.Exit(FOUND)


def _run(settings: Settings, job: Path, pcap: Path | None, outside: list[str]) -> tuple[str, int]:
    """Submit a job and wait for its end; its id, and the bytes that were seen on the way. What is wrong goes to ``outside``."""
    from vfl_node.node.wire_audit import look_outside

    text = load_job(job).canonical()
    client = client_of(settings)
    with look_outside(settings, pcap, outside, err.print) as size:
        job_id = str(client.submit(text)["id"])
        *_, view = client.watch(job_id)
    if view["state"] != "done":
        err.print(f"job {job_id} is {view['state']}: {(view['error'] or {}).get('message', '')}")
    return job_id, size[0]


def _compare(run: dict[str, Any], more: int | None) -> str:
    """How what was looked at compares with ``vfl_peer_bytes_total``, which counts ``more`` bytes."""
    if more is None:
        return "an earlier version has looked, which did not compare with vfl_peer_bytes_total"
    from vfl_node.node.wire import known_bytes  # loads numpy and Arrow

    told = " + ".join(f"{size:,} of {what}" for what, size in known_bytes(run).items())
    rose = f"vfl_peer_bytes_total rose by {run['metric']['bytes']:,} bytes meanwhile"
    return f"{told} = {rose}: equal to the byte" if not more else f"{rose}, but only {told} are known: {more:+,} bytes"


def _show(runs: list[dict[str, Any]], flows: list[dict[str, Any]]) -> None:
    table = Table("peer", "way", "phase", "type", box=None, pad_edge=False)
    for name in ("messages", "bytes"):
        table.add_column(name, justify="right")
    table.add_column("SHA-256")
    table.add_column("values found")
    for flow in flows:
        found = ", ".join(f"{count} × {kind}" for kind, count in sorted(flow["found"].items()))
        row = [flow[key] for key in ("peer", "way", "phase", "type")]
        table.add_row(*row, f"{flow['messages']:,}", f"{flow['bytes']:,}", flow["sha256"][:16], found)
    print_table(table)
    for way in ("sent", "received"):
        of_it = [flow for flow in flows if flow["way"] == way]
        out.print(
            f"{way}: {sum(flow['messages'] for flow in of_it):,} messages, {sum(flow['bytes'] for flow in of_it):,} bytes"
        )
    searched = [run["searched"] for run in runs if run["searched"]]
    for each in searched:
        out.print(f"searched for {each['values']:,} values of this node's table (seed {each['seed'][:8]}…) in what was sent")
    if not searched:
        out.print("nothing was searched for: this node has no table for the job, or it cannot be read")
