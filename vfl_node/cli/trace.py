"""The command that writes the time line of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from vfl_node.cli.shared import ConfigOption, NodeOption, TokenOption, app, check_writable, client_at, out, writing
from vfl_node.errors import UsageError
from vfl_node.report.merged import merge
from vfl_node.report.timeline import TRACE, Timeline, parse_trace, read_trace


@app.command()
def trace(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job of a node, or the --out folder of vfl-node run.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    others: Annotated[list[Path], typer.Option("--with", help="Another party's trace of the job. Repeat for each.")] = [],  # noqa: B006
    target: Annotated[Optional[Path], typer.Option("--out", help="File to write; default: JOB.trace.json.")] = None,  # noqa: UP045
) -> None:
    """Write when the parties of a job sent, received and waited, as a file that ui.perfetto.dev opens."""
    folder = Path(job)
    tried = config is None and not node and folder.is_dir()
    target = target or Path(f"{folder.resolve().name if tried else job}.trace.json")
    halves = _trial(folder) if tried else [parse_trace(client_at(config, node, token_file).trace(job), "the node's answer")]
    merged = merge([*halves, *map(read_trace, others)], same_clock=tried and not others)
    check_writable(target, "--out")
    with writing(target, "--out"):
        target.write_bytes(merged.to_json())
    out.print("\n".join(_words(merged, target)))


def _trial(folder: Path) -> list[Timeline]:
    """The traces of all parties of a run on one machine."""
    files = [path for path in (folder / TRACE, *sorted(folder.glob(f"*/{TRACE}"))) if path.is_file()]
    if not files:
        raise UsageError(
            f"there is no {TRACE} in {folder}",
            code="E_FILE",
            hint="name the folder that `vfl-node run --out` wrote, or a job of a node with --config FILE",
        )
    return [read_trace(path) for path in files]


def _words(merged: Timeline, target: Path) -> list[str]:
    """What was written, and how to look at it."""
    about = merged.otherData
    messages = sum(event.cat == "message" for event in merged.traceEvents)
    lines = [f"{target}: job {about.job} at {' and '.join(about.parties)}, {messages:,} messages"]
    moved = [f"{party} by {-us / 1000:+.1f} ms" for party, us in about.moved_us.items() if us]
    lines += [f"moved to one clock: {', '.join(moved)}"] if moved else []
    return [*lines, "open it at https://ui.perfetto.dev, whose page keeps it in your browser, or at chrome://tracing"]
