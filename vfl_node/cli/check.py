"""``vfl-node check``: what a node would make of a table, before the first job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.table import Column, Table

from vfl_node.cli.shared import ConfigOption, app, err, label_option, out, print_json, print_table
from vfl_node.data.named import data_of
from vfl_node.errors import UsageError, VflError
from vfl_node.job import Job, load_job
from vfl_node.roles import Role
from vfl_node.settings.node import DEFAULT_TABLE, Data, Peer, Settings, peers_in, role_in
from vfl_node.settings.reading import load_settings
from vfl_node.settings.source import NOT_OF_A_FILE

if TYPE_CHECKING:
    from vfl_node.data.column_profile import ColumnProfile
    from vfl_node.data.profile import IdProfile, LabelProfile
    from vfl_node.data.targets import TargetProfile
    from vfl_node.node.check import JobUse, TableCheck

WORDS_SHOWN = 5
"""A check says how often so many words for a missing value stand in a column."""

FILE_ALONE = "table"
"""The party in errors about a file that belongs to no configuration and no job."""


@app.command()
def check(
    file: Annotated[Optional[Path], typer.Argument(help="A table; with --config in place of its data.path.")] = None,  # noqa: UP045
    config: ConfigOption = None,
    id_column: Annotated[list[str], typer.Option(help="Column that identifies a record. Repeat for several.")] = [],  # noqa: B006
    label_column: Annotated[str, typer.Option(help="Column of labels; COLUMN=POSITIVE names the positive class.")] = "",
    rows: Annotated[Optional[int], typer.Option(min=1, help="Look at so many rows only.")] = None,  # noqa: UP045
    job: Annotated[Optional[Path], typer.Option(help="A job file: what it would do with the table.")] = None,  # noqa: UP045
    party: Annotated[str, typer.Option(help="With --job and no --config: whose table it is, a role or name.")] = "",
    table: Annotated[str, typer.Option(help="With --config: only this one of the node's tables.")] = "",
    against: Annotated[
        str, typer.Option(metavar="JOB", help="With --config: how far the table has moved since this job was trained.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Look at a table before the first job: kinds of columns, missing values, labels, ids, and what is wrong."""
    if against and (config is None or job):
        raise UsageError("--against names a job of a node: say --config, and no --job", hint="vfl-node jobs lists them")
    spec = load_job(job) if job else None
    columns: dict[str, Any] = {"path": file} if file else {}
    if id_column:
        columns["id"] = id_column[0] if len(id_column) == 1 else tuple(id_column)
    if label_column:
        columns["label"] = label_option(label_column)
    if config:
        settings = load_settings(config)
        tables = _tables_of(settings, spec, table, columns)
        if against:
            _compare(settings, against, next(iter(tables.values())) if table or columns else None, as_json=as_json)
            return
    elif file:
        data = Data(**columns)
        settings, tables = _settings_for(data, spec, party), {DEFAULT_TABLE: data}
    else:
        raise UsageError("name a table", hint="vfl-node check FILE.csv, or --config FILE of the node that reads it")
    from vfl_node.node.check import check_table  # loads numpy

    checks = {name: check_table(settings, data=data, job=spec, rows=rows) for name, data in tables.items()}
    if as_json:
        documents = {name: _to_json(checked) for name, checked in checks.items()}
        (only, *others) = documents.values()
        print_json({"tables": documents} if others else only)
    for name, checked in checks.items():
        if len(checks) > 1:
            (err if as_json else out).print(f"table {name}")
        if not as_json:
            _show(checked)
            for warning in checked.warnings:
                out.print(f"warning: {warning}")
        for error in checked.errors:
            err.print(f"error: {error}")
    if config and settings.schedules and not as_json:
        _show_schedules(settings)
    if any(checked.errors for checked in checks.values()):
        raise typer.Exit(1)


def _compare(settings: Settings, job_id: str, data: Data | None, *, as_json: bool) -> None:
    """Print how far a table has moved; None: that of the job."""
    from dataclasses import asdict

    from vfl_node.node.drift import compare_with  # loads numpy

    found = compare_with(settings, job_id, data)
    if as_json:
        print_json(asdict(found))
        return
    out.print(f"{found.place}: {found.rows:,} rows, beside {found.rows_then:,} that job {found.job} trained on")
    listed = Table(
        Column("column", overflow="fold"),
        Column("index", justify="right"),
        "in a word",
        Column("missing then", justify="right"),
        Column("now", justify="right"),
        Column("unseen levels", justify="right"),
        box=None,
        pad_edge=False,
    )
    for column in found.columns:
        index = "-" if column.index is None else f"{column.index:.3f}"
        shares = ("-" if share is None else f"{share:.1%}" for share in (column.missing_then, column.missing, column.unseen))
        listed.add_row(column.name, index, column.word, *shares)
    print_table(listed)


def _tables_of(settings: Settings, job: Job | None, wanted: str, columns: dict[str, Any]) -> dict[str, Data | None]:
    """The tables of a node that are looked at, by their names; ``columns`` are keys of one of them that the command replaces.

    Raises:
        UsageError: there is no table ``wanted``, or ``columns`` may be of several.
    """
    tables: dict[str, Data | None] = dict(settings.tables)
    if wanted and wanted not in tables:
        raise UsageError(f"{settings.name} has no table {wanted!r}", hint=f"its tables: {', '.join(tables) or 'none'}")
    if wanted:
        tables = {wanted: tables[wanted]}
    elif job or not tables:
        tables = {DEFAULT_TABLE: None}  # the one that the job uses
    if columns:
        if len(tables) > 1:
            raise UsageError(f"{settings.name} has several tables", hint=f"--table {' or '.join(tables)}")
        ((name, data),) = tables.items()
        given = data or (data_of(settings, job) if settings.tables else None)
        keys = given.model_dump(exclude_unset=True) if given else {}
        if "path" in columns:
            keys = {key: value for key, value in keys.items() if key not in NOT_OF_A_FILE}
        tables = {name: Data(**keys | columns)}
    return tables


def _settings_for(data: Data, job: Job | None, party: str) -> Settings:
    """A node that reads ``data``; its role is that of ``party``, or follows from whether the table has labels."""
    labelled = data.label is not None
    peers: dict[str, Peer] = {}
    from vfl_node.data.readers.opening import open_input  # only a check reads

    with suppress(VflError), closing(open_input(data, party=FILE_ALONE)) as reader:  # the check names what is wrong
        labelled = labelled or "label" in reader.names
    name = FILE_ALONE
    role: Role = "active" if labelled else "passive"
    if job:
        name, role = _party_of(job, party, labelled=labelled)
        peers = peers_in(job.parties, name)
    return Settings(name=name, role=role, data=data, listen="127.0.0.1:0", peers=peers, insecure_loopback=True)


def _party_of(job: Job, party: str, *, labelled: bool) -> tuple[str, Role]:
    """Whose table it is. Raises UsageError if that does not follow from its columns and is not said."""
    roles = {name: role_in(job.parties, name) for name in job.parties.data}
    if party:
        names = [name for name, role in roles.items() if party in (name, role)]
    else:
        names = [name for name, role in roles.items() if (role == (job.label_holder or "active")) == labelled]
    if len(names) != 1:
        what = f"--party {party} is not one party with data" if party else "several parties may own this table"
        raise UsageError(what, hint=f"--party {' or '.join(roles)}")
    (name,) = names
    role = roles[name]
    assert role is not None
    return name, role


def _show(checked: TableCheck) -> None:
    data, table = checked.data, checked.profile
    if data is None or table is None:
        return
    head = "" if table.whole else "the first "
    out.print(f"{data.place}: {checked.format}, {head}{table.rows:,} rows, {len(table.columns)} columns")
    if checked.merged:
        out.print(f"{head}{checked.merged}")
    listed = Table(
        Column("column", overflow="fold"),
        "taken for",
        Column("missing", justify="right"),
        Column("distinct", justify="right"),
        "note",
        box=None,
        pad_edge=False,
    )
    for column in table.columns:
        missing, distinct = ("-" if count is None else f"{count:,}" for count in (column.missing, column.distinct))
        listed.add_row(column.name, column.use, missing, distinct, _note(column, table.rows))
    print_table(listed)
    if image := table.image:
        out.print(f"image: {len(image.columns):,} columns, {image}, {image.columns[0]} to {image.columns[-1]}")
    for line in (*_label_lines(table.label), *_id_lines(table.ids, table.rows), *_job_lines(checked.job)):
        out.print(line)


def _show_schedules(settings: Settings) -> None:
    """What others learn by each schedule, and what should be thought of before."""
    from datetime import datetime, timezone

    from vfl_node.node.schedule_words import describe_schedule  # with what a job needs

    for schedule in settings.schedules:
        said = describe_schedule(settings, schedule, datetime.now(timezone.utc))
        out.print(f"schedule {schedule.name}: {said['tells'] or 'its job cannot be submitted'}")
        for warning in said["warnings"]:
            out.print(f"warning: {warning}")


def _note(column: ColumnProfile, rows: int) -> str:
    if column.error:
        return f"cannot be read: {column.error.code}"
    if column.use == "ignored":
        return "data.columns says ignore"
    if column.use == "row number":
        return "not read: it numbers the rows"
    if column.use not in ("numeric", "categorical", "date", "list"):
        unread = "not read: no key of a job" if column.use == "key" else "not read: this job needs no order"
        return "" if column.missing is not None else unread
    said = ["declared" if column.declared else "by its values"]
    if column.numbers:
        said.append(f"only {column.numbers:,} of {rows - (column.missing or 0):,} are numbers")
    if column.longest is not None:
        cut = f", {column.cut:,} cells cut short" if column.cut else ""
        said.append(f"at most {column.longest:,} items{cut}")
    if (column.distinct or 0) < 2:
        said.append("never varies")
    if column.written:
        said.append(column.written)
    if column.words:
        counted = sorted(column.words.items(), key=lambda each: (-each[1], each[0]))
        more = ", …" if len(counted) > WORDS_SHOWN else ""
        said.append("missing by " + ", ".join(f"{word} ({rows:,})" for word, rows in counted[:WORDS_SHOWN]) + more)
    if column.zero_led:
        said.append(f"{column.zero_led:,} begin with a zero: codes?")
    if column.seems:
        said.append({"thousands": "thousands by points?", "codes": "as many digits each: codes?"}[column.seems])
    if column.rare and not column.near_unique:
        said.append("too many values are rare levels")
    if column.near_unique:
        said.append("text without categories: training refuses it unless it is declared")
    return ", ".join(said)


def _label_lines(label: LabelProfile | TargetProfile | None) -> Iterator[str]:
    from vfl_node.data.targets import TargetProfile  # loads numpy

    if label is None:
        yield "labels: none"
        return
    if isinstance(label, TargetProfile):
        spread = "" if label.mean is None else f"{label.lowest:g} to {label.highest:g}"
        centre = "" if label.mean is None else f"mean {label.mean:g} ± {label.deviation:g}"
        other = f"something else: {label.other:,}" if label.other else ""
        yield f"targets in {label.column}: {'; '.join(filter(None, (f'{label.rows:,} numbers', spread, centre, other)))}"
        return
    names = label.classes or range(max(label.counts, default=0) + 1)
    counts = ", ".join(f"{names[value]}: {rows:,}" for value, rows in label.counts.items())
    other = f"something else: {label.other:,}" if label.other else ""
    rate = "" if label.rate is None else f"rate of {names[1]}: {label.rate:.4g}"
    yield f"labels in {label.column}: {'; '.join(filter(None, (counts, other, rate)))}"
    if label.classes:
        assumed = "; positive is the last in order, set data.label.positive to choose" if label.positive_assumed else ""
        yield f"  {len(label.classes)} classes by name{assumed}"


def _id_lines(ids: IdProfile, rows: int) -> Iterator[str]:
    yield f"ids in {' + '.join(ids.columns)}: {rows:,} rows"
    for form, profile in ids.forms.items():
        yield f"  as {form}: {profile.unusable:,} unusable, {profile.repeated:,} that repeat an earlier one"
    spelt = {
        "integers": ids.numbers,
        "with capitals": ids.capitals,
        "with leading zeros": ids.leading_zeros,
        "with white space inside": ids.inner_space,
        "with invisible characters": ids.invisible,
    }
    yield f"  {', '.join(f'{count:,} {what}' for what, count in spelt.items())}"


def _job_lines(use: JobUse | None) -> Iterator[str]:
    if use is None:
        return
    forms = use.id_form if isinstance(use.id_form, str) else ", ".join(use.id_form)
    yield f"job {use.job}, here {use.place}: aligns {use.records:,} records by {use.protocol}, ids as {forms}"
    yield f"  the fewest that this node allows: {use.min_set_size:,} (min_own_rows in the policy)"
    if use.task is None:
        yield "  it does not train, so it reads no other column"
    else:
        yield f"  trains on {len(use.features):,} columns: {', '.join(use.features) or 'none'}"
        what = "numbers" if use.classes is None else f"{use.classes} classes"
        yield f"  labels: {use.label or 'of another party'}, {what}"
    if use.image:
        yield f"  {use.image}"
    for key in use.keys:
        yield f"  compares records by {key}"
    if use.noise:
        yield f"  noise on similarities: {use.noise}"
    for column in use.columns:
        yield f"  {column.name}: {column}"


def _to_json(checked: TableCheck) -> dict[str, Any]:
    from vfl_node.node.check import describe_error

    data, table, use = checked.data, checked.profile, checked.job
    document: dict[str, Any] = {
        "path": str(data.path) if data and data.path else None,
        "format": checked.format,
        "merged": checked.merged and {name: value for name, value in vars(checked.merged).items() if name != "columns"},
        "table": None,
        "job": use and {**vars(use), "columns": [vars(column) for column in use.columns]},
        "errors": [describe_error(error) for error in checked.errors],
        "warnings": checked.warnings,
    }
    if table:
        label = table.label and {**vars(table.label), "rate": getattr(table.label, "rate", None)}
        ids = {**vars(table.ids), "forms": {form: vars(profile) for form, profile in table.ids.forms.items()}}
        columns = [{**vars(column), "error": column.error and describe_error(column.error)} for column in table.columns]
        image = table.image and table.image.model_dump()
        document["table"] = {
            "rows": table.rows,
            "whole": table.whole,
            "columns": columns,
            "image": image,
            "label": label,
            "ids": ids,
        }
    return document
