"""Read a YAML file into a frozen pydantic model, with errors a person can act on.

YAML is small text that may stand for a large document (aliases), or take long to read
(deep nesting). What a document may hold is counted event by event before any of it is built.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from vfl_node.errors import UsageError
from vfl_node.registry import Registry

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
MOST_VALUES = 20_000
"""What one document may hold; what an alias stands for counts each time."""

MOST_MISTAKES = 5
"""Mistakes of one document that are explained."""

Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: 17 times faster, the same events."""


class _Once(yaml.constructor.SafeConstructor):
    """Refuses a key that a mapping has twice, of which YAML's loaders take the last without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    twice = f"{key.value[:60]!r} is there twice"
                    raise yaml.constructor.ConstructorError(problem=twice, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return dict(super().construct_mapping(node, deep))


class Frozen(BaseModel):
    """Base of everything read from a file: immutable, and unknown keys are refused.

    Attributes:
        called_elsewhere: key → what other tools call it; a hint where somebody writes that.
    """

    called_elsewhere: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True)


def name_in(registry: Registry[Any]) -> BeforeValidator:
    """Accepts the names of ``registry``, in capitals too; the error for another value lists them, as for a ``Literal``."""

    def check(value: object) -> object:
        if isinstance(value, str):
            for name in (value, value.lower().replace("_", "-"), value.lower().replace("-", "_")):
                if name in registry:
                    return name
        *others, last = (repr(name) for name in registry)
        raise PydanticKnownError("literal_error", {"expected": " or ".join(filter(None, [", ".join(others), last]))})

    return BeforeValidator(check)


@dataclass(frozen=True)
class ReadBy:
    """Annotates a section whose keys depend on what it names.

    Only the model of what the section names is loaded, when the section is read.

    Attributes:
        model_of: the model that reads a section, given the section as it was written or as a model. It raises
            ValidationError for one that names nothing known.
    """

    model_of: Callable[[Any], type[BaseModel]]

    def __get_pydantic_core_schema__(self, *_: object) -> CoreSchema:
        """A model inside of another one; the errors of the inner one are placed in the section."""
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, section: Any) -> BaseModel:
        model = self.model_of(section)
        if isinstance(section, BaseModel) and type(section) is not model:
            section = dict(section)
        return model.model_validate(section)


def text_like(pattern: str, words: str) -> StringConstraints:
    """Accepts text that ``pattern`` matches; the error for another value says so in ``words``, a clause."""
    _WORDS[pattern] = words
    return StringConstraints(pattern=pattern)


_WORDS: dict[str, str] = {}
"""Pattern → what it asks for."""

_EXPECTED = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text (put it into quotes)",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
}
"""Kind of pydantic's error → what was expected."""

Place = tuple[str, ...]
"""The keys on the way to a value of a document."""

Model = TypeVar("Model", bound=Frozen)


def load(path: Path, model: type[Model]) -> Model:
    """Read ``path`` as YAML into ``model``.

    Raises:
        UsageError: the file is missing, is not YAML, or has an unknown key or a bad value;
            the message names the file, the key and, for an unknown key, the nearest known one.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = _checked(data, str(path)).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="E_FILE") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", code="E_YAML") from None
    return parse(text, model, source=str(path))


def parse(text: str, model: type[Model], *, source: str) -> Model:
    """As :func:`load`, from a string; ``source`` names it in errors."""
    _checked(text.encode(errors="replace"), source)
    try:
        _check_size(text, source)
        document = yaml.load(text, type("Strict", (_Once, Loader), {}))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, source) from None
    except (ValueError, OverflowError) as error:  # a date of no calendar, a number of too many digits
        raise UsageError(f"{source} is not valid YAML: {error}", code="E_YAML") from None
    return validate(document, model, source=source, text=text)


def _checked(data: bytes, source: str) -> bytes:
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
                raise _too_large(source, event, "an alias to what it is part of, or to nothing")
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
            raise _too_large(source, event, f"more than {MOST_DEPTH} levels")
        if values > MOST_VALUES:
            raise _too_large(source, event, f"more than {MOST_VALUES} values, what aliases stand for included")


def _too_large(source: str, event: yaml.Event, what: str) -> UsageError:
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
    problem = getattr(error, "problem", None) or error
    return UsageError(f"{source}:{line + 1}:{column + 1} is not valid YAML: {problem}", code="E_YAML")


def validate(document: object, model: type[Model], *, source: str, text: str = "") -> Model:
    """As :func:`load`, from a document already parsed; ``text`` is the YAML that it was, whose lines errors name."""
    if not isinstance(document, Mapping):
        raise UsageError(f"{source} must hold keys and values", code="E_YAML")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        placed = _placed(error.errors(), document)
        marks = _places(text)
        mistakes = [(_where(marks, path, key=item["type"] == "extra_forbidden"), path, item) for path, item in placed]
        first = sorted(mistakes, key=itemgetter(0))[:MOST_MISTAKES]
        lines, hints = zip(*(_explain(item, path, model, document) for _, path, item in first), strict=True)
        places = [f"{where[0]}:{where[1]}" if where else "" for where, _, _ in first]
        source = ":".join(filter(None, [source, places[0]]))
        lines = (lines[0], *(": ".join(filter(None, pair)) for pair in zip(places[1:], lines[1:], strict=True)))
        more = f"; and {len(placed) - MOST_MISTAKES} more mistakes" if len(placed) > MOST_MISTAKES else ""
        raise UsageError(
            f"{source}: " + "; ".join(lines) + more, hint=" ".join(hint for hint in hints if hint), code="E_CONFIG"
        ) from None


def _places(text: str) -> dict[Place, tuple[yaml.Mark, yaml.Mark]]:
    """Where each value of a YAML document begins, and the key before it; nothing without a text."""
    places: dict[Place, tuple[yaml.Mark, yaml.Mark]] = {}

    def visit(node: yaml.Node, path: Place, key: yaml.Mark) -> None:
        places[path] = (key, node.start_mark)
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                visit(value, (*path, str(name.value)), name.start_mark)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                visit(value, (*path, str(number)), value.start_mark)

    if text and (root := yaml.compose(text, Loader)):  # no larger than what was parsed before
        visit(root, (), root.start_mark)
    return places


def _where(places: Mapping[Place, tuple[yaml.Mark, yaml.Mark]], path: Place, *, key: bool) -> tuple[int, ...]:
    """Line and column of the value at ``path``, of its key, or of what should have it; empty if that is not known."""
    for depth in range(len(path), -1, -1):
        if marks := places.get(path[:depth]):
            mark = marks[0 if key or depth < len(path) else 1]
            return mark.line + 1, mark.column + 1
    return ()


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of ``model`` that is not itself a model, as (dotted name, JSON value)."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", model.model_dump(mode="json")[name]


def _placed(items: list[Any], document: object) -> list[tuple[tuple[str, ...], Any]]:
    """Pydantic's errors and where in ``document`` each is.

    Where a value may have several forms pydantic reports what is wrong with it as each of
    them. What counts is the form that fits best: it got furthest into the value, or is the first.
    """
    placed: dict[tuple[str, ...], Any] = {}
    for item in sorted(items, key=lambda item: item["type"] == "literal_error" or item["type"].endswith("_type")):
        placed.setdefault(_place(item, document), item)
    passed = {place[:depth] for place in placed for depth in range(len(place))}
    return [(place, item) for place, item in placed.items() if place not in passed]


def _place(item: Any, document: object) -> tuple[str, ...]:
    """The keys on the way to an error, without the names of forms that pydantic puts between them."""
    place: list[str] = []
    for part in item["loc"]:
        there = part in document if isinstance(document, Mapping) else isinstance(document, list) and isinstance(part, int)
        if there:
            document = document[part]  # type: ignore[index]
        if there or (item["type"] == "missing" and part == item["loc"][-1]):
            place.append(str(part))
    return tuple(place)


def _explain(item: Any, path: tuple[str, ...], model: type[BaseModel], document: object) -> tuple[str, str]:
    """One pydantic error at ``path`` as (what is wrong, hint)."""
    name = ".".join(path)
    if item["type"] == "extra_forbidden":
        models = list(_models_at(model, path[:-1], document))
        known = sorted({key for each in models for key in each.model_fields})
        here = [key for each in models for key, others in _elsewhere(each) if path[-1].lower() in others]
        near = here or difflib.get_close_matches(path[-1], known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"unknown key {name!r}", f"{name!r}: {hint}"
    if item["type"] == "missing":
        return f"{name!r} is missing", ""
    if item["type"] == "literal_error":
        given = str(item["input"])
        options = [option.strip(" '") for option in item["ctx"]["expected"].replace(" or ", ", ").split(",")]
        near = difflib.get_close_matches(given, options, n=1, cutoff=0.4)
        return f"{name!r} cannot be {given!r}; it is one of {', '.join(options)}", f"did you mean {near[0]!r}?" if near else ""
    text = item["msg"].removeprefix("Value error, ")
    if item["type"] in _EXPECTED:
        text = f"{repr(item['input'])[:80]} is not {_EXPECTED[item['type']].format(**item.get('ctx', {}))}"
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] in _WORDS:
        text = f"{repr(item['input'])[:80]} is not {_WORDS[item['ctx']['pattern']]}"
        return f"{name!r}: {text}", _near(str(item["input"]), item["ctx"]["pattern"])
    return (f"{name!r}: {text}" if name else text), ""


def _near(value: str, pattern: str) -> str:
    """The text that ``value`` may have been meant to be, if small letters and hyphens make it one."""
    plain = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    return f"did you mean {plain!r}?" if re.fullmatch(pattern, plain) else ""


def _elsewhere(model: type[BaseModel]) -> Iterable[tuple[str, tuple[str, ...]]]:
    return model.called_elsewhere.items() if issubclass(model, Frozen) else ()


def _models_at(model: type[BaseModel], path: tuple[str, ...], document: Any) -> Iterator[type[BaseModel]]:
    """The models that may stand at ``path`` inside ``model``, where ``document`` was to be one."""
    if not path:
        yield model
        return
    field = model.model_fields.get(path[0])
    if field is None:
        return
    inner, annotation, path = document[path[0]], field.annotation, path[1:]
    if get_origin(annotation) is dict:
        inner, annotation, path = inner[path[0]], get_args(annotation)[1], path[1:]
    for form in _forms(Annotated[(annotation, *field.metadata, None)], inner):
        yield from _models_at(form, path, inner)


def _forms(annotation: Any, document: Any) -> Iterator[type[BaseModel]]:
    """The models that ``document`` may have been meant for, of a value of this type."""
    readers = [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, ReadBy)]
    if readers:
        yield readers[0].model_of(document)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for argument in get_args(annotation):
            yield from _forms(argument, document)
