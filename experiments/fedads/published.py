"""The published FedAds data set as the tables of two parties.

    python -m experiments.fedads.published FOLDER OUT [--without COLUMN …] [--user-once]

FOLDER has the three published files, each as ``.csv``, ``.csv.gz`` or ``.tar.gz`` with one file in it:

    sample_train_aligned                              clicks of which both parties have columns
    sample_train_nonaligned (or …_unaligned)          clicks of which only the label party has columns
    sample_test                                       clicks of the last week, of which both have columns

Each is a CSV with a header: ``sample_id``, ``label`` and the columns of the parties, 22 in all. A cell is a list of hashed
values or numbers of bins, nearly always of one: ``['7312']``.

OUT gets ``active.csv`` (the label party: all clicks), ``passive.csv`` (the other one: aligned and test clicks), the private
settings of both and a job. The split is the published one: ``part`` of the active party is 0 for clicks of training and 1 for
those of the test, and the job holds out the last rows in its order (``evaluate.hold_out``), which are exactly the test clicks.

The paper counts 16 + 7 columns: ``l_u_fea_1``, the user, twice, since both parties know it. So it is written for both, unless
``--user-once`` leaves it to the label party.

Source: Wei et al. 2023 (FedAds), section 3; the description that is published with the data (2.2: which column is whose). It
says that ``l_c_fea`` is the other party's, whatever its name begins with.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from numpy.typing import NDArray
from pyarrow import csv

from vfl_node.errors import UsageError
from vfl_node.metrics.classes import auc

ID, LABEL, PART, USER = "sample_id", "label", "part", "l_u_fea_1"

LABEL_PARTY = (*(f"l_i_fea_{k}" for k in range(1, 11)), *(f"l_u_fea_{k}" for k in range(1, 7)))
"""The 16 columns of the label party."""

OTHER_PARTY = ("f_u_fea_1", "f_u_fea_2", "f_uc_fea_1", "f_uc_fea_2", "l_c_fea", "f_c")
"""The 6 columns that only the other party has; with the user 7."""

FILES: Mapping[str, tuple[str, ...]] = {
    "aligned": ("sample_train_aligned",),
    "nonaligned": ("sample_train_nonaligned", "sample_train_unaligned"),
    "test": ("sample_test",),
}
"""Part of the data → the beginnings of the names that its file may have."""

ENDINGS = (".csv", ".csv.gz", ".tar.gz", "")

TELLS_THE_LABEL = 0.95
"""The AUC of a column alone above which it was recorded with the label, or after it."""

MOST_OF_A_CLASS = 20_000
"""So many clicks of each class are looked at for that, evenly spread over the training files."""

LEAST_OF_A_CLASS = 30
"""With fewer nothing can be said: among 22 columns one may separate them by chance."""

BLOCK_BYTES = 16 << 20

_WITHOUT_CELLS = re.compile(
    r"(?:Row #\d+: )?(?:Expected \d+ columns, got \d+|Empty CSV file|invalid UTF8 data|straddling object)"
)


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes:
        files: role → its CSV file.
        rows: ``aligned``, ``nonaligned`` and ``test`` → clicks.
        columns: role → its columns, without id, label and part.
    """

    files: Mapping[str, Path]
    rows: Mapping[str, int]
    columns: Mapping[str, tuple[str, ...]]

    @property
    def last(self) -> float:
        """``evaluate.hold_out.last`` with which exactly the test clicks are held out: ⌈m · last⌉ is their number."""
        return (self.rows["test"] - 0.5) / (self.rows["aligned"] + self.rows["test"])

    def settings(self, role: str) -> dict[str, Any]:
        """A party's private settings."""
        kinds = dict.fromkeys(self.columns[role], "categorical")
        order = {"order": PART, "label": LABEL} if role == "active" else {}
        return {"data": {"path": self.files[role].name, "id": ID, "columns": kinds, **order}}

    def job(self) -> dict[str, Any]:
        """The paper's network (section 5.1.4) over these tables, without what it does with non-aligned clicks."""
        return {
            "name": "fedads",
            "parties": {"active": "active", "passive": "passive"},
            "align": {"protocol": "psi"},
            "train": {
                "embedding_size": 8,
                "bottom": [128, 32],
                "active_bottom": [256, 128],
                "top": [],
                "batch_norm": True,
                "epochs": 1,
                "batch_size": 8192,
            },
            "evaluate": {"hold_out": {"last": self.last}, "metrics": ["auc", "nll"]},
        }


@dataclass
class _Spread:
    """Some clicks of one class, evenly spread over those that were added: every 2^k-th of them.

    Attributes:
        step: every so many-th is kept.
        seen: how many were added.
        kept: those kept.
    """

    step: int = 1
    seen: int = 0
    kept: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        self.kept.append(_select(self.step, rows, -self.seen % self.step))
        self.seen += rows.num_rows
        while sum(batch.num_rows for batch in self.kept) > MOST_OF_A_CLASS:
            self.kept, self.step = [_select(2, self.clicks())], 2 * self.step

    def clicks(self) -> pa.RecordBatch:
        """Those kept, as one batch."""
        (batch,) = pa.Table.from_batches(self.kept).combine_chunks().to_batches()
        return batch


def _select(step: int, rows: pa.RecordBatch, start: int = 0) -> pa.RecordBatch:
    return rows if step == 1 else rows.take(pa.array(np.arange(start, rows.num_rows, step)))


def convert(folder: Path, out: Path, *, without: Collection[str] = (), user_once: bool = False) -> Published:
    """Write both parties' tables.

    Args:
        folder: of the published files.
        out: where the tables, settings and job go.
        without: columns to leave out.
        user_once: whether the user's column is the label party's alone.

    Cost: memory of some blocks of 16 MiB, and of 40,000 clicks for each column.

    Raises:
        UsageError: a file is missing, double or damaged (``E_FILE``), lacks a column or has one twice (``E_COLUMN``), is no
            such CSV (``E_CSV``), or has no click (``E_EMPTY``); a label is neither 0 nor 1 (``E_LABEL``); a column alone tells
            the label (``E_LABEL_LIKE``); ``without`` names no column. Tables that were begun are removed.
    """
    if unknown := sorted(set(without) - {*LABEL_PARTY, *OTHER_PARTY}):
        raise UsageError(f"FedAds has no column {unknown[0]!r} to leave out", hint=f"{', '.join((*LABEL_PARTY, *OTHER_PARTY))}")
    active = tuple(name for name in LABEL_PARTY if name not in without)
    passive = tuple(name for name in ((USER,) * (not user_once) + OTHER_PARTY) if name not in without)
    sources = {part: _file(folder, part) for part in FILES}
    _refuse_telling([(sources["aligned"], (*active, *passive)), (sources["nonaligned"], active)])
    out.mkdir(parents=True, exist_ok=True)
    files, rows = {role: out / f"{role}.csv" for role in ("active", "passive")}, dict.fromkeys(FILES, 0)
    try:
        _write(sources, files, rows, active, passive)
    except BaseException:
        for path in files.values():
            path.unlink(missing_ok=True)
        raise
    made = Published(files, rows, {"active": active, "passive": passive})
    for role in files:
        (out / f"{role}.yaml").write_text(yaml.safe_dump(made.settings(role), sort_keys=False))
    (out / "job.yaml").write_text(yaml.safe_dump(made.job(), sort_keys=False))
    return made


def _write(
    sources: Mapping[str, Path],
    files: Mapping[str, Path],
    rows: dict[str, int],
    active: Sequence[str],
    passive: Sequence[str],
) -> None:
    """Write both tables, and count the clicks of each part in ``rows``."""
    with ExitStack() as stack:
        of_active = stack.enter_context(_writer(files["active"], (ID, *active, PART, LABEL)))
        of_passive = stack.enter_context(_writer(files["passive"], (ID, *passive)))
        for part, source in sources.items():
            both = part != "nonaligned"
            for block in _blocks(source, (ID, LABEL, *dict.fromkeys((*active, *passive) if both else active))):
                when = pa.repeat("1" if part == "test" else "0", block.num_rows)
                named = {name: block.column(name) for name in block.schema.names} | {PART: when}
                of_active.write(pa.record_batch([named[name] for name in (ID, *active, PART, LABEL)], schema=of_active.schema))
                if both:
                    of_passive.write(pa.record_batch([named[name] for name in (ID, *passive)], schema=of_passive.schema))
                rows[part] += block.num_rows
    for part, count in rows.items():
        if count == 0:
            raise UsageError(f"{sources[part]} has no clicks", code="E_EMPTY")


def alone(cells: pa.Array, labels: NDArray[np.int64]) -> float:
    """How well a column alone tells the label: the AUC of how often its value comes with a 1 in the other half of the clicks.

    A value that occurs once tells nothing, as an id, unless all others of its kind have the same label.
    """
    levels = cells.dictionary_encode().indices.to_numpy()
    half = (np.arange(len(labels), dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(16)) & np.uint64(1)  # evenly mixed
    shares = np.empty(len(labels))
    for own in (0, 1):
        learnt, judged = half != own, half == own
        size, rate = levels.max() + 1, labels[learnt].mean()
        ones = np.bincount(levels[learnt], weights=labels[learnt], minlength=size)
        shares[judged] = ((ones + rate) / (np.bincount(levels[learnt], minlength=size) + 1))[levels[judged]]
    area = auc(labels, shares) or 0.5
    return max(area, 1 - area)


def _refuse_telling(parts: Sequence[tuple[Path, Sequence[str]]]) -> None:
    """Look for columns that alone tell the label, in files of training."""
    for source, columns in parts:
        names = list(dict.fromkeys(columns))
        classes = {"0": _Spread(), "1": _Spread()}
        for block in _blocks(source, (LABEL, *names)):
            for value, spread in classes.items():
                if len(rows := block.filter(pc.equal(block.column(LABEL), value))):
                    spread.add(rows)
        if min(spread.seen for spread in classes.values()) < LEAST_OF_A_CLASS:
            continue
        some = [spread.clicks() for spread in classes.values()]
        labels = np.repeat([0, 1], [batch.num_rows for batch in some])
        mixed = np.random.default_rng(0).permutation(len(labels))  # nothing secret: else the halves would be of one class
        for name in names:
            cells = pa.concat_arrays([batch.column(name) for batch in some]).take(pa.array(mixed))
            found = alone(cells, labels[mixed])
            if found > TELLS_THE_LABEL:
                raise UsageError(
                    f"{source.name}: column {name!r} alone tells the label: AUC {found:.3f}, above {TELLS_THE_LABEL:g}. It was "
                    "recorded with the conversion, or after it",
                    code="E_LABEL_LIKE",
                    hint=f"leave it out: --without {name}",
                )


def _file(folder: Path, part: str) -> Path:
    found = [path for start in FILES[part] for end in ENDINGS if (path := folder / f"{start}{end}").is_file()]
    if len(found) != 1:
        one = " or ".join(f"{start}.csv" for start in FILES[part])
        said = f"{' and '.join(path.name for path in found)} are the same" if found else f"has no {one}"
        raise UsageError(f"{folder}: {said}", code="E_FILE", hint="each part of the data is one file: .csv, .csv.gz or .tar.gz")
    return found[0]


@contextmanager
def _opened(path: Path) -> Iterator[pa.NativeFile]:
    """The CSV of a published file; hidden files of an archive, such as macOS adds, are passed over."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                hidden = PurePosixPath(member.name).name.startswith(".")
                inner = archive.extractfile(member) if member.isfile() and not hidden else None
                if inner is not None:
                    yield pa.PythonFile(cast("BinaryIO", inner), mode="r")
                    return
        raise UsageError(f"{path} has no file in it", code="E_FILE")
    with pa.input_stream(str(path), compression="detect") as stream:
        yield stream


def _blocks(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The clicks of a published file, some at a time: these columns, as text without brackets and quotes; empty: no value."""
    options = csv.ConvertOptions(
        column_types=dict.fromkeys((ID, LABEL, *LABEL_PARTY, *OTHER_PARTY), pa.string()), strings_can_be_null=False
    )
    line = 2
    try:
        with (
            _opened(path) as stream,
            csv.open_csv(stream, read_options=csv.ReadOptions(block_size=BLOCK_BYTES), convert_options=options) as reader,
        ):
            named = reader.schema.names
            for wrong, word in ((0, "lacks"), (2, "has twice")):
                if found := [name for name in columns if min(2, named.count(name)) == wrong]:
                    raise UsageError(
                        f"{path.name} {word} {', '.join(found)}", code="E_COLUMN", hint="is it the published file?"
                    )
            for block in reader:
                cells = [_cells(block.column(name)) for name in columns]
                _check_labels(path, line, dict(zip(columns, cells, strict=True)))
                line += block.num_rows
                yield pa.record_batch(cells, names=list(columns))
    except pa.ArrowInvalid as error:
        about = ": ".join(["", *_WITHOUT_CELLS.findall(str(error))[:1]])  # what pyarrow says after that are cells
        raise UsageError(f"{path.name} is no CSV that can be read, from line {line} on{about}", code="E_CSV") from None
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        raise UsageError(
            f"{path.name} is damaged or not complete, from line {line} on",
            code="E_FILE",
            hint="compare its size with the published one, and load it again",
        ) from None


def _check_labels(path: Path, line: int, cells: Mapping[str, pa.Array]) -> None:
    wrong = np.flatnonzero(~pc.is_in(cells[LABEL], value_set=pa.array(["0", "1"])).to_numpy(zero_copy_only=False))
    if len(wrong):
        raise UsageError(f"{path.name}:{line + int(wrong[0])}:{LABEL}: the label is neither 0 nor 1", code="E_LABEL")


def _cells(column: pa.Array) -> pa.Array:
    """``['7']`` → ``7``; ``['7', '8']`` → ``7|8``; ``[]`` → nothing. Cells without brackets stay."""
    bare = pc.utf8_trim(column, characters="[]'\" ")
    if not pc.any(pc.match_substring(bare, ",")).as_py():
        return bare
    return pc.replace_substring_regex(bare, r"""['"]?\s*,\s*['"]?""", "|")


@contextmanager
def _writer(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    schema = pa.schema([(name, pa.string()) for name in columns])
    options = csv.WriteOptions(quoting_style="needed")
    with path.open("wb") as file, csv.CSVWriter(file, schema, write_options=options) as writer:
        yield _Writing(writer, schema)


@dataclass(frozen=True)
class _Writing:
    """A CSV under way, and its columns."""

    writer: csv.CSVWriter
    schema: pa.Schema

    def write(self, rows: pa.RecordBatch) -> None:
        """Append ``rows``."""
        self.writer.write_batch(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the three published files")
    parser.add_argument("out", type=Path, help="where both tables, settings and a job are written")
    parser.add_argument("--without", nargs="*", default=(), metavar="COLUMN", help="columns to leave out")
    parser.add_argument("--user-once", action="store_true", help=f"{USER} for the label party alone")
    given = parser.parse_args(arguments)
    try:
        made = convert(given.folder, given.out, without=given.without, user_once=given.user_once)
    except UsageError as error:
        parser.exit(1, f"{error.code}: {error.message}\n{error.hint}\n")
    print(json.dumps({"rows": made.rows, "columns": {role: len(names) for role, names in made.columns.items()}}))
    settings = " ".join(f"--settings {role}={given.out}/{role}.yaml" for role in made.files)
    print(f"vfl-node run {given.out}/job.yaml {settings} --out …")


if __name__ == "__main__":
    main()
