"""Back to the release before: its index is put back, if no job would be lost.

Only the index has a form that a release brings up to date as it starts. Ledgers, reports and models stay as they are.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from vfl_node.errors import StateError, UsageError
from vfl_node.node.backup_form import INDEX
from vfl_node.node.faults import cannot_use
from vfl_node.node.index import check_whole, damage_error, read_min_reader
from vfl_node.node.index_copies import address_of, digest_of, path_of_copy
from vfl_node.node.state_lock import LOCK, hold
from vfl_node.process import failpoints
from vfl_node.process.files import make_names_durable
from vfl_node.settings.node import Settings

MOST_NAMED = 20
"""How many jobs an error names."""

_COMPARED = (("jobs", "id", {"sha256", "figures"}), ("documents", "job", {"body"}))
"""Table, the column with the job's id, and columns that say nothing of a job that others do not."""

_ENDED_AND_PRUNED = """
    SELECT id FROM main.pruned AS gone WHERE id NOT IN (SELECT id FROM earlier.pruned)
    AND NOT EXISTS (SELECT 1 FROM earlier.jobs WHERE earlier.jobs.id = gone.id AND earlier.jobs.state = gone.state)
"""
"""Jobs that were pruned since, and that the copy does not know as they ended: it would have them go on, or begin anew."""


@dataclass(frozen=True)
class Rollback:
    """What was done.

    Attributes:
        before: version of the index as it was found.
        version: as it is now.
        copied: when the index was copied that is put back; None: the one that is there can stay.
    """

    before: int
    version: int
    copied: datetime | None = None


def roll_back(settings: Settings, version: int) -> Rollback:
    """Have a node that does not run an index that releases of an earlier version can use; whole or not at all.

    Those releases bring an index of a still earlier version up to date by themselves. So the newest copy is put back that has
    their version or an earlier one.

    A job that had ended before the copy and was pruned since is listed again, until it is pruned once more.

    Args:
        settings: of the node.
        version: of the index, that the earlier release has.

    Raises:
        UsageError: there is no index (``E_FILE``), or the node runs (``E_STATE_LOCKED``).
        StateError: jobs would be lost, or there is no copy (``E_STATE_VERSION``); the index or the copy is damaged
            (``E_STATE_CORRUPT``), or the system refuses.
    """
    index = settings.state_dir / INDEX
    if not index.exists():
        raise UsageError(f"{settings.state_dir} has no state of a node", code="E_FILE", hint="there is nothing to go back from")
    try:
        holder = hold(settings.state_dir / LOCK)
        try:
            return _put_back(index, version)
        finally:
            os.close(holder)
    except sqlite3.OperationalError as error:
        raise cannot_use(settings.state_dir, error) from None
    except sqlite3.DatabaseError as error:
        raise damage_error(index, str(error)) from None
    except OSError as error:
        raise cannot_use(settings.state_dir, error) from None


def _put_back(index: Path, version: int) -> Rollback:
    """As :func:`roll_back`, in a state folder that nobody else uses; raises also what the system says."""
    with closing(sqlite3.connect(address_of(index, "rw"), uri=True, isolation_level=None)) as database:
        database.text_factory = lambda cell: cell.decode(errors="replace")  # a damaged one may be no text
        check_whole(database, index)
        before = database.execute("PRAGMA user_version").fetchone()[0]
        keeps_copies = bool(_columns(database, "main", "meta"))
        if version >= before or (keeps_copies and version >= read_min_reader(database, index)):
            return Rollback(before, before)
        version, copy = _attach_copy(database, index, version)
        copied = datetime.fromtimestamp(copy.stat().st_mtime, timezone.utc)
        if lost := _find_lost(database):
            raise _loss(lost, version, copied)
        database.execute("DETACH earlier")
        database.execute("PRAGMA journal_mode=DELETE")  # else what is in its journal (WAL) would go into the copy
    failpoints.reach("rename")
    copy.replace(index)
    make_names_durable(index.parent)
    return Rollback(before, version, copied)


def _attach_copy(database: sqlite3.Connection, index: Path, version: int) -> tuple[int, Path]:
    """Attach the newest copy of this version or an earlier one as ``earlier``, if it is what the index says that it is.

    Returns:
        Its version, and where it lies.

    Raises: as :func:`_put_back`.
    """
    stated = dict(database.execute("SELECT version, sha256 FROM copies")) if _columns(database, "main", "copies") else {}
    there = sorted(each for each in stated if path_of_copy(index, each).is_file())
    if not (fitting := [each for each in there if each <= version]):
        copies = f"copies of version {' and '.join(map(str, there))}" if there else "no copy"
        raise StateError(
            f"the index cannot become one of version {version}: beside {index} there is {copies} from which it comes",
            code="E_STATE_VERSION",
            hint="keep this release, or restore a backup that the earlier release has made (vfl-node restore)",
        )
    copy = path_of_copy(index, fitting[-1])
    if digest_of(copy) != stated[fitting[-1]]:
        raise damage_error(copy, "it is not what was copied")
    database.execute("ATTACH ? AS earlier", [address_of(copy, "ro")])
    check_whole(database, copy, "earlier")
    return fitting[-1], copy


def _find_lost(database: sqlite3.Connection) -> list[str]:
    """The ids of the jobs that are not in ``earlier`` as they are in the index. Raises sqlite3.Error."""
    found = set[str]()
    for table, key, ignored in _COMPARED:
        now, then = (_columns(database, schema, table) for schema in ("main", "earlier"))
        shared = ", ".join(name for name in now if name in then and name not in ignored)
        if shared:
            changed = f"SELECT {shared} FROM main.{table} EXCEPT SELECT {shared} FROM earlier.{table}"  # noqa: S608 - our words
        else:  # nothing of this kind was known then
            changed = f"SELECT {key} FROM main.{table}"  # noqa: S608 - the same
        found |= {job for (job,) in database.execute(f"SELECT {key} FROM ({changed})")}  # noqa: S608 - the same
    if _columns(database, "main", "pruned") and _columns(database, "earlier", "pruned"):
        found |= {job for (job,) in database.execute(_ENDED_AND_PRUNED)}
    return sorted(found)


def _columns(database: sqlite3.Connection, schema: str, table: str) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?, ?)", [table, schema])]


def _loss(jobs: list[str], version: int, copied: datetime) -> StateError:
    named = ", ".join(jobs[:MOST_NAMED]) + (f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else "")
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    return StateError(
        f"the index of version {version} was copied on {copied:%Y-%m-%d %H:%M} UTC, and {count} began, went on or ended since. "
        f"With that copy the node would lose what it knows of: {named}",
        code="E_STATE_VERSION",
        hint="keep this release, or lose them by restoring a backup that the earlier release has made (vfl-node restore)",
    )
