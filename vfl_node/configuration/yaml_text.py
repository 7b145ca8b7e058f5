"""YAML text as a document, within bounds, and where each value of it stands.

YAML is small text that may stand for a large document (aliases), or take long to read (deep nesting). What a document may hold
is counted event by event before any of it is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from vfl_node.errors import UsageError

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
MOST_VALUES = 20_000
"""What one document may hold; what an alias stands for counts each time."""

MOST_DIGITS = 100
"""Most digits of a whole number. Python neither reads nor writes one of more than 4,300, and no field has a use for one."""

Place = tuple[str, ...]
"""The keys on the way to a value of a document."""

Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: 17 times faster, the same events."""


class _Strict(yaml.constructor.SafeConstructor):
    """Refuses a key that a mapping has twice, of which YAML's loaders take the last without a word, and endless numbers."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    twice = f"{key.value[:60]!r} is there twice"
                    raise yaml.constructor.ConstructorError(problem=twice, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return dict(super().construct_mapping(node, deep))

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > MOST_DIGITS:
            problem = f"a whole number of more than {MOST_DIGITS} digits"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        return int(super().construct_yaml_int(node))


_Strict.add_constructor("tag:yaml.org,2002:int", _Strict.construct_yaml_int)  # type: ignore[type-var]


def read(text: str, source: str) -> Any:
    """The document that ``text`` is; ``source`` names it in errors.

    Raises:
        UsageError: it is no YAML, or stands for too much (``E_YAML``); with line and column.
    """
    check_length(text.encode(errors="replace"), source)
    try:
        _check_size(text, source)
        return yaml.load(text, type("Strict", (_Strict, Loader), {}))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, source) from None
    except (ValueError, OverflowError) as error:  # a date of no calendar, a number of too many digits
        raise UsageError(f"{source} is not valid YAML: {error}", code="E_YAML") from None


def check_length(data: bytes, source: str) -> bytes:
    """``data``, if it is not too long. Raises UsageError (``E_YAML``)."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{source} has more than {MOST_BYTES} bytes", code="E_YAML")
    return data


def _check_size(text: str, source: str) -> None:
    """Raises UsageError (``E_YAML``) for a document that is nested too deep or stands for too many values."""
    sizes: dict[str, int] = {}  # anchor → values that it stands for
    opened: list[tuple[str | None, int]] = []  # collections around the event: anchor, values before it
    values = 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _size_error(source, event, "an alias to what it is part of, or to nothing")
            values += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor:
                sizes[anchor] = values - before
        if len(opened) > MOST_DEPTH:
            raise _size_error(source, event, f"more than {MOST_DEPTH} levels")
        if values > MOST_VALUES:
            raise _size_error(source, event, f"more than {MOST_VALUES} values, what aliases stand for included")


def _size_error(source: str, event: yaml.Event, what: str) -> UsageError:
    mark = event.start_mark
    where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
    return UsageError(f"{source}{where} has {what}", code="E_YAML", hint="write it plainly")


def _not_yaml(error: yaml.YAMLError, text: str, source: str) -> UsageError:
    """Where and why ``text`` is not YAML."""
    mark = getattr(error, "problem_mark", None)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    if isinstance(error, yaml.reader.ReaderError):  # a character that YAML does not allow
        shown = next((at for at, letter in enumerate(text) if not (letter.isprintable() or letter in "\t\r\n")), 0)
        line, column = text.count("\n", 0, shown), shown - text.rfind("\n", 0, shown) - 1
        return UsageError(f"{source}:{line + 1}:{column + 1} is not valid YAML: a character that is none", code="E_YAML")
    if [*text.split("\n"), ""][line][column : column + 1] == "\t":
        return UsageError(
            f"{source}:{line + 1}:{column + 1} is not valid YAML: a tab", code="E_YAML", hint="indent with spaces"
        )
    problem = getattr(error, "problem", None) or error
    return UsageError(f"{source}:{line + 1}:{column + 1} is not valid YAML: {problem}", code="E_YAML")


def places(text: str) -> dict[Place, tuple[yaml.Mark, yaml.Mark]]:
    """Where each value of a YAML document begins, and the key before it; nothing without a text."""
    marks: dict[Place, tuple[yaml.Mark, yaml.Mark]] = {}

    def visit(node: yaml.Node, path: Place, key: yaml.Mark) -> None:
        marks[path] = (key, node.start_mark)
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                visit(value, (*path, str(name.value)), name.start_mark)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                visit(value, (*path, str(number)), value.start_mark)

    if text and (root := yaml.compose(text, Loader)):  # no larger than what was parsed before
        visit(root, (), root.start_mark)
    return marks


def position(marks: Mapping[Place, tuple[yaml.Mark, yaml.Mark]], path: Place, *, key: bool) -> tuple[int, ...]:
    """Line and column of the value at ``path``, of its key, or of what should have it; empty if that is not known."""
    for depth in range(len(path), -1, -1):
        if key_and_value := marks.get(path[:depth]):
            mark = key_and_value[0 if key or depth < len(path) else 1]
            return mark.line + 1, mark.column + 1
    return ()


def quote_key(name: str) -> str:
    """``name`` as a key of a mapping in braces, in quotes where YAML needs them: what a hint shows can be copied."""
    return yaml.safe_dump({name: 0}, default_flow_style=True, allow_unicode=True, width=1000).strip()[1:-4]
