"""A party's table as a job reads it, and the part of it that takes part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from vfl_node.alignment.lists import promises
from vfl_node.crypto.filters.values import check_values
from vfl_node.data.aggregate import merge_rows
from vfl_node.data.levels import check_categories
from vfl_node.data.lists import check_lists
from vfl_node.data.named import data_of, needs_order
from vfl_node.data.readers.contract import Reader
from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import Table, check_enough
from vfl_node.estimate.words import describe_start
from vfl_node.job import Align, Job
from vfl_node.job.costs import TableShape
from vfl_node.job.keys import NO_KEYS
from vfl_node.job.training import TrainerConfig
from vfl_node.progress import Progress, TrainingCostKnown
from vfl_node.roles import Role
from vfl_node.session.memory import Memory
from vfl_node.settings.declared import list_of
from vfl_node.settings.node import Data, Limits, Settings
from vfl_node.settings.protection import Protection
from vfl_node.training.table_use import check_row_numbers, table_use_of


def read_input(settings: Settings, job: Job, table: Any = None) -> Table:
    """This party's table as ``job`` aligns it or trains on it.

    Args:
        settings: of this party.
        job: the job.
        table: in memory, as :class:`vfl_node.data.readers.arrow.ArrowReader` takes it; None: where the settings say.

    Raises:
        DataError: as :func:`vfl_node.data.reading.read_table` and :func:`data_of`; a column of text cannot be trained on
            (``E_TEXT_COLUMN``), or the model reads no lists (``E_LIST``).
        UsageError: as :func:`~vfl_node.training.table_use.check_row_numbers`.
        PolicyError: it has too few records (``E_TOO_FEW``).
    """
    data = data_of(settings, job)
    read = read_table(
        data,
        id_form=job.align.id_form,
        needs_label=settings.role == job.label_holder,
        party=settings.name,
        task=job.task,
        classes=job.classes,
        at_least=settings.limits_for(job).min_own_rows,
        reader=None if table is None else open_table(data, settings.name, table),
        needs_order=needs_order(settings, job),
        keys=job.align.keys or NO_KEYS,
        features=job.train is not None,
    )
    if job.align.keys:
        check_values(job.align.keys, read.keys)  # texts that are too short; all else is refused with its place already
    if job.train:
        check_categories(read, settings.name)
        check_lists(read, settings.name, read=table_use_of(job.train, settings.models).reads_lists())
        check_row_numbers(job.train, read)
    return read


def open_table(data: Data, party: str, table: Any = None) -> Reader:
    """A reader of a party's table.

    Args:
        data: where it is.
        party: its name, for errors.
        table: in memory, as :class:`vfl_node.data.readers.arrow.ArrowReader` takes it, in place of where ``data`` says.

    Raises:
        DataError: as the reader.
    """
    if table is None:
        return open_input(data, party=party)
    from vfl_node.data.readers.arrow import ArrowReader  # loads Arrow

    return ArrowReader(table, source=f"{party}: the table in memory")


def count_input(settings: Settings, job: Job) -> TableShape:
    """How many records this party's table for ``job`` has and, at the most, columns: for an estimate, without their values.

    Raises:
        DataError: as :func:`vfl_node.data.reading.read_table` and :func:`data_of`.
    """
    data = data_of(settings, job)
    with closing(open_input(data, party=settings.name)) as opened:
        reader = merge_rows(opened, data, id_form=job.align.id_form, party=settings.name, label=False, features=False)
        data = data.of_records
        rows = sum(batch.columns.num_rows for batch in reader.batches(reader.names[:1]))
        pixels, shape = (math.prod(data.image.dimensions), data.image.dimensions) if data.image else (0, None)
        declared = [kind for name in reader.names if (kind := list_of(data.columns.get(name)))]
        lists = tuple((1, kind.longest) for kind in declared)  # how many different items there are is not known either
        numeric = max(2 * (len(reader.names) - len(lists)) - pixels, pixels)
        return TableShape(rows, numeric, image=shape, lists=lists)


def announce(progress: Progress, job: Job, tables: Mapping[str, Table]) -> None:
    """Report what training will cost, as far as it can be computed before anything is aligned.

    Args:
        progress: receives :class:`~vfl_node.progress.TrainingCostKnown`, or nothing where the trainer gives no estimate.
        job: the job.
        tables: party → its table: this one's; all data parties' where they have one owner, who may then know how many records
            they share.
    """
    if job.train is None:
        return
    shared = None
    if len(tables) > 1:
        first, *others = (table.ids for table in tables.values())
        common = len(set(first).intersection(*others))
        shared = (common, common)
    if sentences := describe_start(job, {name: len(table) for name, table in tables.items()}, shared):
        progress.emit(TrainingCostKnown("; ".join(sentences)))


def select_records(table: Table, align: Align, memory: Memory, limits: Limits, party: str) -> Table:
    """The records of ``table`` that ``align`` lets take part: the same ones in every job with this partner.

    Raises:
        PolicyError: an earlier job had another part (``E_PROMISE``), or it is too small (``E_TOO_FEW``).
        DataError: as :func:`vfl_node.data.sampling.sample`.

    Leaks: how many records an earlier job had, if the peer searches for the number that is not refused; it was told then.
    """
    most = len(table) if align.at_most is None else min(align.at_most, len(table))
    check_enough(most, limits.min_own_rows, party)
    promises.hold_part(memory, table.identity, most)
    return table if most == len(table) else sample(table, most, promises.part_seed(memory, table.identity))


def check_named_columns(
    table: Table, protection: Protection, *, party: str, role: Role, train: TrainerConfig | None = None, whole: bool = True
) -> None:
    """Refuse settings that name columns, to audit or to protect them, which the table lacks, or which nobody can rebuild.

    Args:
        table: of this party.
        protection: what its settings say.
        party: its name.
        role: of this party.
        train: of the job; None: of any job.
        whole: whether these are all rows of the table; of others it is not known how many there are, or whether columns vary.

    Raises:
        UsageError: as :func:`~vfl_node.privacy.features.targets.check_columns`, or the table is too small for an audit of
            columns, even if all its rows were trained on (``E_CONFIG``).
    """
    if role != "passive" or (train is not None and "embeddings" not in train.traits.defended):
        return
    from vfl_node.privacy.defences.decoding import ColumnParams
    from vfl_node.privacy.features.rows import check_enough as check_enough_known  # loads torch
    from vfl_node.privacy.features.targets import check_columns

    for number, params in enumerate(protection.defences):
        if isinstance(params, ColumnParams):
            check_columns(table, params.names, party=party, setting=f"defences.{number} ({params.name}): columns", whole=whole)
    if features := protection.features:
        check_columns(table, features.names, party=party, setting="audit.features.columns", whole=whole)
        if whole:
            check_enough_known(int(features.known_share * len(table)), share=features.known_share)
