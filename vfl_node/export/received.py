"""A half that another party has sent: read within bounds, and never run here.

Whoever sends it may send anything. So the bytes are walked first, and only fields, operators and types that
:mod:`vfl_node.halves.graph` writes are let through. Nothing is taken from memory for what is refused: a parser of ONNX would
take some tens of bytes for two. What the half says about itself must be what the job says. An SQL text is prepared by SQLite,
which reports all that it would touch, and not run.

That the numbers are those of the training nobody can check who lacks the sender's table.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import ValidationError

from vfl_node.errors import ProtocolError
from vfl_node.export.loaded import FORM, FileForm
from vfl_node.halves.graph import ABOUT, IR_VERSION, ML, ML_OPSET, OPERATORS, OPSET, TYPE_BYTES
from vfl_node.halves.half import About
from vfl_node.halves.statement import TABLE, quote
from vfl_node.transport.bounds import MOST_HALF_CARD_BYTES
from vfl_node.transport.fields import read_varint

MOST_FIELDS = 4_000_000
"""Fields of one file in all: a level of a category takes two."""

MOST_COLUMNS = 2_000
"""Columns of a table in SQLite."""

MOST_AXES = 4
"""More axes than a constant of an export has."""

FUNCTIONS = frozenset({"abs", "ln", "sqrt"})
"""What a SELECT of an export calls (:mod:`vfl_node.halves.statement`)."""

_QUOTED = re.compile(r"""--[^\n]*|'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_BEGIN, _SELECT, _FROM = (re.compile(rf"\b{words}\b", re.IGNORECASE) for words in ("(?:WITH|SELECT)", "SELECT", "FROM"))
_WHOLE_FROM = re.compile(r"\bFROM\s+(\w+)\s*(?=[);]|$)", re.IGNORECASE)

Value = int | memoryview

# Field numbers of onnx.proto that an export has: message → number → what it is.
_MODEL = {1: "ir_version", 2: "producer_name", 3: "producer_version", 7: "graph", 8: "opset", 14: "property"}
_OPSET = {1: "domain", 2: "version"}
_PROPERTY = {1: "key", 2: "value"}
_GRAPH = {1: "node", 2: "name", 5: "constant", 11: "input", 12: "output"}
_NODE = {1: "input", 2: "output", 4: "operator", 5: "attribute", 7: "domain"}
_ATTRIBUTE = {1: "name", 2: "f", 3: "i", 4: "s", 7: "floats", 8: "ints", 9: "strings", 20: "type"}
_TENSOR = {1: "dim", 2: "type", 8: "name", 9: "raw"}
_VALUE = {1: "name", 2: "type"}


def check_model(model: bytes, due: About) -> FileForm:
    """What a received ONNX file says about itself.

    Args:
        model: the file; its size was bounded when it arrived.
        due: what it must say; ``reads``, ``rows`` and ``classes`` are the sender's own.

    Raises:
        ProtocolError: it is not as this version writes a half, or is one of another job or party (``E_EXPORT``).

    Cost: about a microsecond a field; no copy of the file.
    """
    try:
        return _FileWalk(due.party).check(memoryview(model), due)
    except (LookupError, UnicodeDecodeError, ValidationError, RecursionError):  # also of a field that is not there
        raise refuse(due.party, "is no ONNX file of a half") from None


def check_card(card: bytes, party: str, files: Mapping[str, bytes]) -> None:
    """Refuse a card that is not of these files. Raises ProtocolError (``E_EXPORT``)."""
    try:
        read = json.loads(card)
        said = {name: file["sha256"] for name, file in read["files"].items()}
        whose = read["party"]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise refuse(party, "has a card that cannot be read") from None
    if whose != party or said != {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}:
        raise refuse(party, "has a card of other files")


def check_sql(text: bytes, form: FileForm) -> None:
    """Refuse a text that is not one SELECT from the table of records by arithmetic. Raises ProtocolError (``E_EXPORT``)."""
    party = form.about.party
    columns = ", ".join(map(quote, ["id", *form.about.reads]))
    if len(form.about.reads) >= MOST_COLUMNS or b"/*" in text:
        raise refuse(party, "has SQL that no export writes")
    database = sqlite3.connect(":memory:")
    try:
        database.execute(f"CREATE TABLE {TABLE} ({columns})")
        database.set_authorizer(_authorise)
        database.execute(f"EXPLAIN {text.decode()}")
        _check_steps(text.decode(), party)
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        raise refuse(party, "has SQL that no export writes") from None
    finally:
        database.close()


def refuse(party: str, what: str) -> ProtocolError:
    """The error of a half that is not taken."""
    return ProtocolError(
        f"the half that {party} sent {what}",
        code="E_EXPORT",
        hint=f"nothing of it was stored. Ask the owner of {party} which software its node runs",
        for_peer="the half that it got is not one that this version writes",
    )


def _check_steps(text: str, party: str) -> None:
    """Refuse what is not a chain of steps: each selects from the one before alone, the first from the table of records.

    So there is no join, which may give any number of rows. Raises ProtocolError (``E_EXPORT``).
    """
    bare = _QUOTED.sub("", text).strip()
    chosen, sources = _SELECT.findall(bare), _WHOLE_FROM.findall(bare)
    due = [TABLE, *(f"step{place}" for place in range(1, len(chosen)))]
    if not _BEGIN.match(bare) or sources != due or len(_FROM.findall(bare)) != len(due):
        raise refuse(party, "has SQL that no export writes")


def _authorise(action: int, first: str | None, second: str | None, *_: object) -> int:
    read = action == sqlite3.SQLITE_READ and (first or TABLE).startswith((TABLE, "step"))
    called = action == sqlite3.SQLITE_FUNCTION and second in FUNCTIONS
    return sqlite3.SQLITE_OK if read or called or action == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_DENY


class _FileWalk:
    """One walk through one file."""

    def __init__(self, party: str) -> None:
        self._party, self._left = party, MOST_FIELDS

    def check(self, model: memoryview, due: About) -> FileForm:
        about: FileForm | None = None
        versions: dict[str, Value] = {}
        inputs: set[str] = set()
        for key, value in self._fields(model, _MODEL):
            if key == "graph":
                inputs = self._graph(_bytes(value))
            elif key == "opset":
                parts = dict(self._fields(_bytes(value), _OPSET))
                versions[_text(parts.get("domain", memoryview(b"")))] = parts["version"]
            elif key == "property":
                parts = dict(self._fields(_bytes(value), _PROPERTY))
                about = self._parse_about(_bytes(parts["value"])) if _text(parts["key"]) == ABOUT else None
            elif key == "ir_version" and value != IR_VERSION:
                raise refuse(self._party, "is of another version of ONNX")
        if versions != {"": OPSET, ML: ML_OPSET}:
            raise refuse(self._party, "uses other sets of operators than an export")
        if about is None or inputs != {*about.about.reads, *about.received}:
            raise refuse(self._party, "does not say what it reads")
        said = about.about
        if replace(said, reads=due.reads, rows=due.rows, classes=due.classes) != due:
            raise refuse(self._party, "says that it is of another job, party or model")
        return about

    def _parse_about(self, text: memoryview) -> FileForm:
        """What the half says of itself. Lists of JSON take some tens of times their text, so that has the bound of a card."""
        if len(text) > MOST_HALF_CARD_BYTES:
            raise refuse(self._party, "says more of itself than a card has")
        return FORM.validate_json(bytes(text))

    def _graph(self, graph: memoryview) -> set[str]:
        """The names of its inputs."""
        inputs = set()
        for key, value in self._fields(graph, _GRAPH):
            if key == "node":
                self._node(_bytes(value))
            elif key == "constant":
                self._constant(_bytes(value))
            elif key == "input":
                inputs.add(_text(dict(self._fields(_bytes(value), _VALUE))["name"]))
        return inputs

    def _node(self, node: memoryview) -> None:
        operator, domain = "", ""
        for key, value in self._fields(node, _NODE):
            if key == "operator":
                operator = _text(value)
            elif key == "domain":
                domain = _text(value)
            elif key == "attribute":
                for _ in self._fields(_bytes(value), _ATTRIBUTE):
                    pass  # a field that holds a graph, a tensor or a reference is refused
        if (operator, domain) not in OPERATORS:
            raise refuse(self._party, "has an operator that no export has")

    def _constant(self, tensor: memoryview) -> None:
        shape: list[int] = []
        kind, raw = 0, 0
        for key, value in self._fields(tensor, _TENSOR):
            if key == "dim":
                shape.append(_number(value))
            elif key == "type":
                kind = _number(value)
            elif key == "raw":
                raw = len(_bytes(value))
        if len(shape) > MOST_AXES or kind not in TYPE_BYTES or raw != math.prod(shape) * TYPE_BYTES[kind]:
            raise refuse(self._party, "has a constant that no export has")

    def _fields(self, data: memoryview, known: Mapping[int, str]) -> Iterator[tuple[str, Value]]:
        """Each field of a message, by its name. Raises ProtocolError of an unknown one, IndexError where bytes are missing."""
        at, end = 0, len(data)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise refuse(self._party, f"has more than {MOST_FIELDS:,} fields")
            tag, at = read_varint(data, at)
            name, wire = known.get(tag >> 3), tag & 7
            if name is None:
                raise refuse(self._party, "has a field that no export has, such as data outside of the file")
            value: Value
            if wire == 0:
                value, at = read_varint(data, at)
            else:
                size, at = read_varint(data, at) if wire == 2 else (4, at) if wire == 5 else (end, at)
                if at + size > end:
                    raise IndexError
                value, at = data[at : at + size], at + size
            yield name, value


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise IndexError
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise IndexError
    return value


def _text(value: Value) -> str:
    return bytes(_bytes(value)).decode()
