"""Read a YAML file into a frozen pydantic model, with errors a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Tag, ValidationError

from vfl_node.errors import UsageError


class Frozen(BaseModel):
    """Base of everything read from a file: immutable, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Frozen)


def load(path: Path, model: type[Model]) -> Model:
    """Read ``path`` as YAML into ``model``.

    Raises:
        UsageError: the file is missing, is not YAML, or has an unknown key or a bad value;
            the message names the file, the key and, for an unknown key, the nearest known one.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="E_FILE") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", code="E_YAML") from None
    return parse(text, model, source=str(path))


def parse(text: str, model: type[Model], *, source: str) -> Model:
    """As :func:`load`, from a string; ``source`` names it in errors."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UsageError(f"{source}{where} is not valid YAML: {getattr(error, 'problem', error)}", code="E_YAML") from None
    return validate(document, model, source=source)


def validate(document: object, model: type[Model], *, source: str) -> Model:
    """As :func:`load`, from a document already parsed."""
    if not isinstance(document, Mapping):
        raise UsageError(f"{source} must hold keys and values", code="E_YAML")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        placed = _placed(error.errors(), document)
        lines, hints = zip(*(_explain(item, path, model) for path, item in placed), strict=True)
        raise UsageError(
            f"{source}: " + "; ".join(lines), hint=" ".join(hint for hint in hints if hint), code="E_CONFIG"
        ) from None


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


def _explain(item: Any, path: tuple[str, ...], model: type[BaseModel]) -> tuple[str, str]:
    """One pydantic error at ``path`` as (what is wrong, hint)."""
    name = ".".join(path)
    if item["type"] == "extra_forbidden":
        known = sorted(_known_keys(model, path[:-1], item["loc"]))
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.4)
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
    return (f"{name!r}: {text}" if name else text), ""


def _known_keys(model: type[BaseModel], path: tuple[str, ...], tags: tuple[object, ...]) -> set[str]:
    """The keys allowed at ``path`` inside ``model``; of several forms, those that ``tags`` name."""
    if not path:
        return set(model.model_fields)
    field = model.model_fields.get(path[0])
    annotation = field.annotation if field else None
    if get_origin(annotation) is dict:
        return _known_keys(get_args(annotation)[1], path[2:], tags)
    return set().union(*(_known_keys(form, path[1:], tags) for form in _forms(annotation, tags)))


def _forms(annotation: Any, tags: tuple[object, ...]) -> Iterator[type[BaseModel]]:
    """The models that a value of this type may be, but for tagged ones that ``tags`` leave out."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif not any(isinstance(extra, Tag) and extra.tag not in tags for extra in getattr(annotation, "__metadata__", ())):
        for argument in get_args(annotation):
            yield from _forms(argument, tags)
