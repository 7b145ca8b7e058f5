"""Writes the files of one half, after all of them are made and compared: a refusal leaves none."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from vfl_node.data.readers.contract import Reader
from vfl_node.data.tables import Table
from vfl_node.errors import UsageError
from vfl_node.export import card
from vfl_node.export.checks import SelfCheck, check_file
from vfl_node.export.folders import open_folder
from vfl_node.export.loaded import CARD, FORM, FileForm
from vfl_node.export.reading import read_cells
from vfl_node.halves.graph import Kind, check_installed, export_error
from vfl_node.halves.half import OwnHalf
from vfl_node.models import NONE_DECLARED
from vfl_node.process.files import private_folder, write_whole
from vfl_node.settings.node import Data

Form = Literal["onnx", "sql", "card"]

FORMS: tuple[Form, ...] = ("onnx", "sql", "card")


def export_half(
    half: OwnHalf,
    report: Mapping[str, Any],
    target: Path,
    *,
    forms: Collection[Form] = (),
    own: Table | None = None,
    ids: tuple[str, ...] = ("id",),
) -> list[Path]:
    """Write the files of one half into ``target`` (0700, each file 0600).

    Args:
        half: the half.
        report: of its party.
        target: a folder, made where there is none; files of an earlier export are replaced.
        forms: what is wanted; none: a model, a card, and SQL where that is possible, and nothing else of an earlier export
            stays. A card also speaks of files of the half that stay.
        own: the party's table, of which rows are compared; None: made-up rows are.
        ids: the id columns, for SQL.

    Returns:
        The files.

    Raises:
        UsageError: the half cannot be written so, or differs from what would be written, or there is no such form
            (``E_EXPORT``); a package is not
            installed (``E_EXTENSION``); the folder cannot be written (``E_FILE``).
    """
    wanted = forms or FORMS
    if unknown := [form for form in wanted if form not in FORMS]:
        raise export_error(f"there is no form {unknown[0]!r}", f"forms are {', '.join(FORMS)}, in a list")
    made, checked = make_files(half, wanted, own, ids, strict=bool(forms))
    earlier = [target / name for name in (f"{half.about.party}.onnx", f"{half.about.party}.sql") if name not in made]
    if "card" in wanted:
        kept = {path.name: path.read_bytes() for path in earlier if forms and path.is_file()}
        described = card.describe(report, half, list_files(made | kept), checked)
        made |= {CARD: card.to_json(described), "card.md": card.to_markdown(described)}
    try:
        private_folder(target)
        for name, content in made.items():
            write_whole(target / name, content)
        for path in () if forms else earlier:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", code="E_FILE", hint="name another folder") from None
    return [target / name for name in made]


def make_files(
    half: OwnHalf, forms: Collection[Form], own: Table | None, ids: tuple[str, ...], *, strict: bool
) -> tuple[dict[str, bytes], SelfCheck | None]:
    """Name → content of the files of the model, each compared with the half; and what the self-check of ONNX has found.

    Args:
        half: the half.
        forms: what is wanted; a card is made of these files.
        own: as for :func:`export_half`.
        ids: likewise.
        strict: whether SQL that cannot be is an error; else it is left out.

    Raises:
        UsageError: as :func:`export_half`.
    """
    from vfl_node.export.sql import check_select, select_of
    from vfl_node.training.additive.exported import SummedHalf

    made: dict[str, bytes] = {}
    checked: SelfCheck | None = None
    if "onnx" in forms:
        check_installed("onnx", "onnxruntime")
        made[f"{half.about.party}.onnx"] = model = to_onnx(half)
        checked = check_file(half, model, own)
    if "sql" in forms:
        try:
            select = select_of(half, ids)
            assert isinstance(half, SummedHalf)
            check_select(half, select, own)
            made[f"{half.about.party}.sql"] = select.text.encode()
        except UsageError as error:
            if strict or error.code != "E_EXPORT":
                raise
    return made, checked


def list_files(made: Mapping[str, bytes]) -> list[card.ExportedFile]:
    """Files for a card."""
    return [card.ExportedFile(name, hashlib.sha256(content).hexdigest(), len(content)) for name, content in made.items()]


def export_folder(
    folder: Path,
    target: Path,
    *,
    forms: Collection[Form] = (),
    table: Reader | None = None,
    ids: tuple[str, ...] = ("id",),
    models: Mapping[str, str] = NONE_DECLARED,
    source: Data | None = None,
) -> list[Path]:
    """As :func:`export_half`, of the half that a job has left in ``folder``; ``table`` reads the party's table, and is closed.

    ``source`` is what the party's settings say of that table.

    Raises:
        StateError: as :func:`vfl_node.export.folders.open_folder`.
        DataError: the table cannot be read, or lacks a column of the half.
    """
    half, report = open_folder(folder, models)
    own = None
    if table is not None and half.about.reads:
        about = half.about
        own = read_cells(table, about.reads, id_form=about.id_form, source=source, rows=about.rows)[0]
    return export_half(half, report, target, forms=forms, own=own, ids=ids)


def to_onnx(half: OwnHalf) -> bytes:
    """The half as an ONNX file."""
    graph = half.graph()
    emitted = half.emit(graph, half.raw(graph))
    result = graph.name(half.about.gives)
    encoded = {part: graph.name(part) for part in emitted.encoded}
    form = FileForm(half.about, emitted.received, result, encoded)
    kind: Kind = "double" if half.about.predicts else half.part_kind
    outputs = {result: (emitted.result, kind, emitted.axes)}
    outputs |= {encoded[part]: (*value, 2) for part, value in emitted.encoded.items()}
    return graph.to_bytes(outputs, FORM.dump_json(form).decode())
