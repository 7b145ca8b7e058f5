"""Whether this node's table can be used: what its owner asks before the first job, and the node while it runs.

Everything here is for the owner. It has column names, counts and the texts of errors, which name a place and never show a cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.images import Image
from vfl_node.data.keys import keys_text
from vfl_node.data.levels import check_categories
from vfl_node.data.lists import check_lists
from vfl_node.data.merged import MergedRows
from vfl_node.data.named import data_of, needs_order
from vfl_node.data.profile import TableProfile, profile
from vfl_node.data.readers.head import HeadReader
from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import columns_for
from vfl_node.data.tables import check_enough
from vfl_node.data.text_columns import TextColumns
from vfl_node.data.words_seen import WordsReader
from vfl_node.errors import DataError, UsageError, VflError
from vfl_node.job import IdForm, Job
from vfl_node.job.keys import NO_KEYS, Keys
from vfl_node.node.doubts import doubts
from vfl_node.node.spending import check_budget
from vfl_node.roles import Task
from vfl_node.settings.node import Data, Settings
from vfl_node.training.table_use import check_row_numbers, table_use_of


@dataclass(frozen=True)
class JobUse:
    """What a job does with a table.

    Attributes:
        job: its name.
        role: of this party.
        place: the same in words: one of several passive parties is not the only one.
        protocol: of the alignment.
        id_form: how identifiers are compared.
        label: the column that is read as labels; None if this party's labels are not needed.
        task: what the labels are; None if it does not train.
        classes: how many the job has; None if it does not train, or has none.
        features: the columns that training reads; none if the job does not train.
        columns: what training would do with each of them, as all rows suggest; none if there are errors, or the trainer does
            not say.
        records: how many take part.
        min_set_size: the fewest that this node's owner allows.
        image: what training does with an image, in words; empty if there is none, and none is expected.
        keys: by which records are compared, in words, each with its columns.
        noise: on similarities, in words; empty if there are none.
    """

    job: str
    role: str
    place: str
    protocol: str
    id_form: IdForm | tuple[IdForm, ...]
    label: str | None
    task: Task | None
    classes: int | None
    features: tuple[str, ...]
    records: int
    min_set_size: int
    columns: tuple[EncodedColumn, ...] = ()
    image: str = ""
    keys: tuple[str, ...] = ()
    noise: str = ""


@dataclass(frozen=True)
class TableCheck:
    """What is known of a table.

    Attributes:
        data: where it lies.
        format: what was read, in a few words; None if nothing was.
        profile: of the table; None if it cannot be read, or lacks a column that the settings name.
        job: what the job does with it; None without a job, or without a profile.
        errors: what the node would raise, in its order; none if a job could run.
        merged: how many rows became the records; None: each row is one, or nothing was read.
        warnings: what would make a result doubtful, in whole sentences; of a table that can be used.
    """

    data: Data | None
    format: str | None
    profile: TableProfile | None
    job: JobUse | None
    errors: tuple[VflError, ...]
    warnings: tuple[str, ...] = ()
    merged: MergedRows | None = None


def check_table(settings: Settings, *, data: Data | None = None, job: Job | None = None, rows: int | None = None) -> TableCheck:
    """Look at a table of this party.

    Args:
        settings: of this party.
        data: the table; None: the one that the job uses.
        job: what is to be done with it. Without a job ids are compared as ``text``, and an active party has labels.
        rows: only so many from the beginning; None: all.

    Cost: 0.4 s for 10,000 rows of 30 columns (one core of a small server); with a job in which a passive party makes rows
        up about 3 s more, for an estimate of what they tell (:mod:`vfl_node.training.split.joint_estimate`).

    Raises:
        UsageError: this node is a coordinator, or the job predicts, and so reads the table as another job did.
    """
    if settings.role == "coordinator":
        raise UsageError("a coordinator has no data to check", code="E_ROLE", hint="check at the parties that bring data")
    if job and job.predict:
        raise UsageError("a job that predicts has no form of its own for the table", hint="give the job that trained its model")
    errors: list[VflError] = []
    if job:
        from vfl_node.execution.allowed import check_allowed  # with what an estimate needs

        try:
            check_allowed(settings, job, loading=False)
            check_budget(settings, job)
        except VflError as error:
            errors.append(error)
    format, merged, seen, use, known = None, None, None, None, tuple[str, ...]()
    try:
        data = data or data_of(settings, job)
        needs_label = settings.role == (job.label_holder if job else "active")
        id_form = job.align.id_form if job else "text"
        ordered = needs_order(settings, job)
        keys = (job.align.keys if job else None) or NO_KEYS
        text, whole, words = _read(
            data, settings.name, rows, id_form=id_form, needs_label=needs_label, needs_order=ordered, keys=keys
        )
        format, merged = text.format, text.merged
        seen = profile(
            text,
            data,
            id_form=id_form,
            needs_label=needs_label,
            party=settings.name,
            task=job.task if job else None,
            classes=job.classes if job else None,
            at_least=settings.limits_for(job).min_own_rows,
            whole=whole,
            needs_order=ordered,
            keys=keys,
            words=words,
        )
        errors += seen.errors
        if job:
            use = _use(job, settings, data, seen, needs_label=needs_label)
            _check_use(use, job, settings, seen)
            if job.train and seen.table:
                use = replace(use, columns=table_use_of(job.train, settings.models).columns(seen.table))
        if seen.table and (settings.audit.features or settings.defences) and (job is None or job.train):
            from vfl_node.execution.inputs import check_named_columns  # loads torch

            train, name = job.train if job else None, settings.name
            check_named_columns(seen.table, settings.protection, party=name, role=settings.role, train=train, whole=seen.whole)
        if seen.table and seen.whole and job and settings.audit.linkage:
            from vfl_node.execution.recognisable import key_cautions  # loads scipy

            known = key_cautions(job, settings.audit.linkage, seen.table.keys, settings.name)
    except VflError as error:
        errors.append(error)
    said = doubts(seen, job, use.columns if use else (), settings) if seen else ()
    return TableCheck(data, format, seen, use, tuple(errors), (*known, *said) if seen else (), merged)


def _read(
    data: Data,
    party: str,
    rows: int | None,
    *,
    id_form: IdForm | tuple[IdForm, ...],
    needs_label: bool,
    needs_order: bool,
    keys: Keys,
) -> tuple[TextColumns, bool, Mapping[str, Mapping[str, int]]]:
    """The table, or its first rows; whether these are all of it; and the words for missing values in its columns."""
    use: dict[str, Any] = {"id_form": id_form, "needs_label": needs_label, "needs_order": needs_order, "keys": keys}
    with closing(open_input(data, party=party)) as reader:
        read = reader if rows is None else HeadReader(reader, rows)
        counting = WordsReader(read, data)
        try:
            text = columns_for(counting, data, party=party, keep_label=True, **use)
        except DataError as error:
            if rows is None or error.code != "E_EMPTY" or data.aggregate is None:
                raise
        else:
            return text, read.whole if isinstance(read, HeadReader) else True, counting.seen
    return _read(data, party, None, **use)  # the first rows may all be later than data.aggregate.as_of


def _use(job: Job, settings: Settings, data: Data, seen: TableProfile, *, needs_label: bool) -> JobUse:
    return JobUse(
        job=job.name,
        role=settings.role,
        place=f"{'a' if settings.role == 'passive' and len(job.parties.passive) > 1 else 'the'} {settings.role} party",
        protocol=job.align.protocol,
        id_form=job.align.id_form,
        label=data.labels.column if needs_label else None,
        task=job.task if job.train else None,
        classes=job.classes if job.train and job.task == "classification" else None,
        features=tuple(column.name for column in seen.features) if job.train else (),
        records=seen.rows if job.align.at_most is None else min(seen.rows, job.align.at_most),
        min_set_size=settings.limits_for(job).min_own_rows,
        image=_image(job, settings, seen.image) if job.train else "",
        keys=keys_text(job.align.keys or NO_KEYS, data, settings.name),
        noise=_noise(job, settings),
    )


def _noise(job: Job, settings: Settings) -> str:
    """The noise of a linkage, and what the passive party's owner wants of it."""
    if (noise := job.align.noise) is None:
        return ""
    said = f"sigma {noise.sigma:g}" if noise.sigma is not None else f"tau {noise.tau:g}, from which sigma follows"
    least = f"; the least that this node allows: {settings.limits_for(job).linkage.min_sigma:g} (linkage.min_sigma)"
    return said + (least if settings.role == "passive" else "")


def _image(job: Job, settings: Settings, image: Image | None) -> str:
    """What training does with the image of a table, or without one."""
    read = job.train is not None and table_use_of(job.train, settings.models).reads_images()
    if image is None:
        return "the model reads images, and data.image names none: this party's columns go into dense layers" if read else ""
    pixels = f"{len(image.columns):,} columns of data.image"
    return f"reads {pixels} as an image, {image}" if read else f"reads {pixels} as numeric columns: its model takes no images"


def _check_use(use: JobUse, job: Job, settings: Settings, seen: TableProfile) -> None:
    """Raise what the job still lacks: records, room, columns."""
    from vfl_node.alignment.sizes import check_announced
    from vfl_node.estimate.budget import Budget
    from vfl_node.estimate.memory import shape_of

    if use.records < seen.rows:  # a part; the profile compares the whole
        check_enough(use.records, use.min_set_size, settings.name)
    check_announced(use.records, job.align, settings.role, settings.limits_for(job).size.rows)
    if seen.table is None:
        return
    Budget(settings.resources.memory_mib, settings.models, settings.protection).fit(
        job, settings.role, shape_of(seen.table), settings.limits_for(job)
    )
    if job.train and settings.role != "coordinator":
        check_categories(seen.table, settings.name)
        table_use = table_use_of(job.train, settings.models)
        check_lists(seen.table, settings.name, read=table_use.reads_lists())
        check_row_numbers(job.train, seen.table)
        table_use.check(settings.role, seen.table)


def describe_error(error: VflError) -> dict[str, str]:
    """An error for its owner, as JSON."""
    return {"code": error.code, "message": error.message, "hint": error.hint}
