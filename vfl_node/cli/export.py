"""The commands that take a trained half out of the product, and that predict by halves that were taken out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfl_node.cli.shared import ConfigOption, app, check_writable, out, writing
from vfl_node.errors import PolicyError, UsageError
from vfl_node.process.files import write_whole
from vfl_node.settings.reading import load_settings

if TYPE_CHECKING:
    from vfl_node.export.exporting import Form


@app.command("export")
def export(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job of this node, or the --out folder of vfl-node run.")],
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; made where there is none.")],
    config: ConfigOption = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="The half as an ONNX file, which reads raw cells.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="As a SELECT; of a model without hidden layers.")] = False,
    card: Annotated[bool, typer.Option("--card", help="What a reader must know of it: card.json and card.md.")] = False,
    data: Annotated[
        list[str], typer.Option("--data", metavar="PARTY=FILE", help="Of a folder: a table to compare on. Repeat for each.")
    ] = [],  # noqa: B006
    id_column: Annotated[
        list[str], typer.Option("--id-column", help="Of a folder: what SQL calls the ids; repeat of composite ids.")
    ] = ["id"],  # noqa: B006
) -> None:
    """Write this node's half of a trained model to files that need no vfl-node; by default all that its model allows.

    Halves that the job has brought here (export.joint) are written into a folder for each party.
    """
    wanted: dict[Form, bool] = {"onnx": onnx, "sql": sql, "card": card}
    forms = [form for form, asked in wanted.items() if asked]
    if config is None:
        written = _from_folder(Path(job), target, forms, data, tuple(id_column))
    else:
        written = _from_node(job, target, forms, config)
    out.print("\n".join(map(str, written)))
    out.print("These files hold what this party's model knows of its table. See the card before you hand them on.")


def _from_node(job_id: str, target: Path, forms: list[Form], config: Path) -> list[Path]:
    from vfl_node.data.named import data_of
    from vfl_node.execution.inputs import open_table
    from vfl_node.execution.outcome import JobOutcome
    from vfl_node.export.exporting import export_folder
    from vfl_node.export.folders import MODEL, job_in
    from vfl_node.report.stored import FILE, read_report

    settings = load_settings(config)
    outcome = JobOutcome(settings.state_dir / "jobs" / job_id)
    if Path(job_id).name != job_id or not outcome.sealed:
        raise UsageError(f"this node has no finished job {job_id}", code="E_UNKNOWN_JOB", hint="vfl-node jobs lists them")
    report = read_report(outcome.artefact(FILE))
    job = job_in(report)
    limits, receives = settings.limits_for(job), job.receiver == settings.name
    if not (limits.allow_export or (receives and limits.allow_joint_export)):
        raise PolicyError(
            "this node's policy does not allow its halves to leave",
            hint="set everyone: {allow_export: true} in the policy, or in partners the name of the other party with it",
        )
    outcome.artefact(MODEL)
    source = data_of(settings, job)
    ids = (source.id,) if isinstance(source.id, str) else tuple(source.id)
    reader = open_table(source, settings.name)
    models = settings.models
    written = export_folder(outcome.artefacts, target, forms=forms, table=reader, ids=ids, models=models, source=source)
    for name in job.parties.others(settings.name) if receives else ():
        from vfl_node.export.joint import write_received

        written += write_received(outcome, name, target / name)
    return written


def _from_folder(folder: Path, target: Path, forms: list[Form], data: list[str], ids: tuple[str, ...]) -> list[Path]:
    from vfl_node.execution.outcome import SUMS
    from vfl_node.export.exporting import export_folder
    from vfl_node.export.folders import MODEL, read_trained
    from vfl_node.export.reading import open_given

    if not folder.is_dir():
        hint = "a job of this node needs --config FILE; else name the folder that `vfl-node run --out` wrote"
        raise UsageError(f"there is no folder {folder}", code="E_FILE", hint=hint)
    folders = [path.parent for path in (folder / MODEL, *sorted(folder.glob(f"*/{MODEL}"))) if path.is_file()]
    if not folders:
        raise UsageError(f"there is no {MODEL} in {folder}", code="E_FILE", hint="name a folder of `vfl-node run --out`")
    if kept := next((each for each in folders if (each / SUMS).exists()), None):
        hint = "name the job, with --config FILE"
        raise PolicyError(f"{kept} is of a job of a node, whose policy says whether its halves may leave", hint=hint)
    reports, tables, written = [read_trained(each) for each in folders], _tables(data), list[Path]()
    known = [str(report[key]) for report in reports for key in ("party", "role")]
    if unknown := tables.keys() - known:
        names = ", ".join(dict.fromkeys(known))
        raise UsageError(f"no half is of {', '.join(sorted(unknown))}", hint=f"the halves are of {names}")
    for each, report in zip(folders, reports, strict=True):
        path = tables.get(report["party"], tables.get(report["role"]))
        table = None if path is None else open_given(path, report["party"])
        written += export_folder(each, target / report["party"], forms=forms, table=table, ids=ids)
    return written


@app.command("score")
def score(
    halves: Annotated[list[Path], typer.Argument(metavar="HALF…", help="The ONNX files of all parties of one model.")],
    data: Annotated[list[str], typer.Option("--data", metavar="PARTY=FILE", help="A party's table, by name or role. Repeat.")],
    target: Annotated[Path, typer.Option("--out", help="CSV file to write: ids and probabilities, or numbers.")],
    id_column: Annotated[list[str], typer.Option("--id-column", help="What identifies a record; repeat of composite ids.")] = [  # noqa: B006
        "id"
    ],
) -> None:
    """Predict by exported halves in one place: for one owner of all tables. No node takes part, and nothing is counted."""
    from vfl_node.export.joining import score_jointly
    from vfl_node.export.loaded import load

    check_writable(target, "--out")
    scored = score_jointly([load(path) for path in halves], _tables(data), ids=tuple(id_column))
    with writing(target, "--out"):
        write_whole(target, scored.csv)
    out.print(f"wrote {target}: {scored.scored:,} of {len(scored.values):,} records are in all tables")


def _tables(data: list[str]) -> dict[str, Path]:
    """``PARTY=FILE`` options as party or role → file."""
    tables: dict[str, Path] = {}
    for option in data:
        name, equals, path = option.partition("=")
        if not equals or not path or name in tables:
            raise UsageError(
                f"--data {option} is not PARTY=FILE, or is given twice", hint="for example --data active=clinic.csv"
            )
        tables[name] = Path(path)
    return tables
