"""Read a YAML file into a frozen pydantic model, with errors a person can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from vfl_node.configuration.registry import Registry
from vfl_node.configuration.renamed import LASTING_NAMES, read_keys, write_keys
from vfl_node.configuration.yaml_text import MOST_BYTES, Place, check_length, places, position, read
from vfl_node.errors import UsageError

_EARLIER: dict[str | int, set[str]] = {}
"""Key → what it was called in some section of an earlier version, or is in short: a document may have it so."""

MOST_MISTAKES = 5
"""Mistakes of one document that are explained."""


class Frozen(BaseModel):
    """Base of everything read from a file: immutable, and unknown keys are refused.

    Attributes:
        renamed: what a key was called in an earlier version → what it is called now. The earlier name is read with a
            FutureWarning.
        called_elsewhere: key → what other tools call it; a hint where somebody writes that.
        short: key → the section that it stands for, and what it says there; its validator has to replace it.
        together: keys, in full, that together do what one key does in other tools → what it is called there; likewise.
    """

    renamed: ClassVar[Mapping[str, str]] = {}
    called_elsewhere: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    short: ClassVar[Mapping[str, tuple[str, Mapping[str, Any]]]] = {}
    together: ClassVar[Mapping[tuple[str, ...], tuple[str, ...]]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for old, new in cls.renamed.items():
            _EARLIER.setdefault(new, set()).add(old)
        for short, said in cls.short.items():
            _EARLIER.setdefault(said[0], set()).add(short)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic's own, and before every validator of the model its keys get their names of today."""
        schema = handler(source)
        if not cls.renamed:
            return schema
        write = core_schema.wrap_serializer_function_ser_schema(write_keys(cls.renamed), info_arg=True)
        return core_schema.with_info_before_validator_function(read_keys(cls.renamed), schema, serialization=write)


def name_in(registry: Registry[Any] | tuple[str, ...]) -> BeforeValidator:
    """Accepts the names of ``registry``, in capitals too; the error for another value lists them, as for a ``Literal``."""

    def check(value: object) -> object:
        if isinstance(value, str):
            for name in (value, value.lower().replace("_", "-"), value.lower().replace("-", "_")):
                if name in registry:
                    return registry.renamed.get(name, name) if isinstance(registry, Registry) else name
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
        return core_schema.with_info_plain_validator_function(self._read)

    def _read(self, section: Any, info: ValidationInfo) -> BaseModel:
        model = self.model_of(section)
        if isinstance(section, BaseModel) and type(section) is not model:
            section = dict(section)
        return model.model_validate(section, context=info.context)


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

Model = TypeVar("Model", bound=Frozen)


def load(path: Path, model: type[Model]) -> Model:
    """Read ``path`` as YAML into ``model``.

    Raises:
        UsageError: the file is missing, is not YAML, or has an unknown key or a bad value;
            the message names the file, the key and, for an unknown key, the nearest known one.
    """
    return parse(text_of(path), model, source=str(path))


def text_of(path: Path) -> str:
    """The text of a YAML file. Raises UsageError (``E_FILE``, ``E_YAML``)."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        return check_length(data, str(path)).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="E_FILE") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", code="E_YAML") from None


def parse(text: str, model: type[Model], *, source: str, context: str | None = None) -> Model:
    """As :func:`load`, from a string; ``source`` and ``context`` as in :func:`validate`."""
    document = read(text, source)
    return validate(document, model, source=source, text=text, context=context)


def validate(document: object, model: type[Model], *, source: str, text: str = "", context: str | None = None) -> Model:
    """As :func:`load`, from a document already parsed.

    Args:
        document: keys and values.
        model: that reads it.
        source: names it in errors.
        text: the YAML that it was, whose lines errors name.
        context: of pydantic: :data:`LASTING_NAMES`, or None.
    """
    if not isinstance(document, Mapping):
        raise UsageError(f"{source} must hold keys and values", code="E_YAML")
    try:
        return model.model_validate(document, context=context)
    except ValidationError as error:
        placed = _locate_errors(error.errors(), document)
        marks = places(text)
        mistakes = [(_position(marks, path, item), path, item) for path, item in placed]
        first = sorted(mistakes, key=itemgetter(0))[:MOST_MISTAKES]
        lines, hints = zip(*(_explain(item, path, model, document) for _, path, item in first), strict=True)
        stands = [":".join(map(str, place)) for place, _, _ in first]
        source = ":".join(filter(None, [source, stands[0]]))
        lines = (lines[0], *(": ".join(filter(None, pair)) for pair in zip(stands[1:], lines[1:], strict=True)))
        more = f"; and {len(placed) - MOST_MISTAKES} more mistakes" if len(placed) > MOST_MISTAKES else ""
        raise UsageError(
            f"{source}: " + "; ".join(lines) + more, hint=" ".join(hint for hint in hints if hint), code="E_CONFIG"
        ) from None


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of ``model`` that is not itself a model and that it writes, as (dotted first name, JSON value)."""
    written = model.model_dump(mode="json", context=LASTING_NAMES)
    first_names = {new: old for old, new in model.renamed.items()} if isinstance(model, Frozen) else {}
    for field in type(model).model_fields:
        name, value = first_names.get(field, field), getattr(model, field)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        elif name in written:
            yield f"{prefix}{name}", written[name]


def _locate_errors(items: list[Any], document: object) -> list[tuple[tuple[str, ...], Any]]:
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
        of_list = isinstance(document, list) and isinstance(part, int) and part < len(document)
        if isinstance(document, Mapping) and part not in document:
            part = next((old for old in _EARLIER.get(part, ()) if old in document), part)
        there = part in document if isinstance(document, Mapping) else of_list
        if there:
            document = document[part]  # type: ignore[index]
        if there or (item["type"] == "missing" and part == item["loc"][-1]):
            place.append(str(part))
    return tuple(place)


def _position(marks: Mapping[Place, Any], path: Place, item: Any) -> tuple[int, ...]:
    """Line and column of an error; where its text begins with a key of what is wrong as a whole, those of this key."""
    named = re.match(r"Value error, ([a-z_]+(?:\.[a-z_0-9]+)*)", item["msg"])
    key = (*path, *named[1].split(".")) if named else path
    if key != path and key in marks:
        return position(marks, key, key=True)
    return position(marks, path, key=item["type"] == "extra_forbidden")


def _explain(item: Any, path: tuple[str, ...], model: type[BaseModel], document: object) -> tuple[str, str]:
    """One pydantic error at ``path`` as (what is wrong, hint)."""
    name = ".".join(path)
    tag = ".".join([*path, item.get("ctx", {}).get("discriminator", "").strip("'")])
    if item["type"] == "extra_forbidden":
        models = list(_models_at(model, path[:-1], document))
        known = sorted({key for each in models for key in each.model_fields})
        here = [key for each in models for key, others in _elsewhere(each) if path[-1].lower() in others]
        near = here or difflib.get_close_matches(path[-1], known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        several = [keys for each in models for keys, others in _key_groups(each) if path[-1].lower() in others]
        if several:
            hint = f"{' and '.join(several[0])} do that here"
        return f"unknown key {name!r}", f"{name!r}: {hint}"
    if item["type"] == "missing":
        return f"{name!r} is missing", ""
    if item["type"] == "literal_error":
        return _one_of(name, str(item["input"]), item["ctx"]["expected"].replace(" or ", ", "))
    if item["type"] == "union_tag_invalid":
        return _one_of(tag, str(item["ctx"]["tag"]), item["ctx"]["expected_tags"])
    if item["type"] == "union_tag_not_found":
        return f"{tag!r} is missing", ""
    if item["type"] in ("too_short", "too_long"):
        most, count = item["ctx"].get("max_length"), item["ctx"]["actual_length"]
        bound = f"at least {item['ctx']['min_length']}" if most is None else f"at most {most}"
        return f"{name!r} has {count} {'entry' if count == 1 else 'entries'}, and must have {bound}", ""
    text = item["msg"].removeprefix("Value error, ")
    if item["type"] in _EXPECTED:
        text = f"{repr(item['input'])[:80]} is not {_EXPECTED[item['type']].format(**item.get('ctx', {}))}"
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] in _WORDS:
        text = f"{repr(item['input'])[:80]} is not {_WORDS[item['ctx']['pattern']]}"
        return f"{name!r}: {text}", _suggest(str(item["input"]), item["ctx"]["pattern"])
    return (f"{name!r}: {text}" if name else text), ""


def _one_of(name: str, given: str, expected: str) -> tuple[str, str]:
    """As :func:`_explain`, of a value that is none of those ``expected``, quoted and with commas between."""
    options = [option.strip(" '") for option in expected.split(",")]
    near = difflib.get_close_matches(given, options, n=1, cutoff=0.4)
    return f"{name!r} cannot be {given!r}; it is one of {', '.join(options)}", f"did you mean {near[0]!r}?" if near else ""


def _suggest(value: str, pattern: str) -> str:
    """The text that ``value`` may have been meant to be, if small letters and hyphens make it one."""
    plain = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    return f"did you mean {plain!r}?" if re.fullmatch(pattern, plain) else ""


def _elsewhere(model: type[BaseModel]) -> Iterable[tuple[str, tuple[str, ...]]]:
    return model.called_elsewhere.items() if issubclass(model, Frozen) else ()


def _key_groups(model: type[BaseModel]) -> Iterable[tuple[tuple[str, ...], tuple[str, ...]]]:
    return model.together.items() if issubclass(model, Frozen) else ()


def _models_at(model: type[BaseModel], path: tuple[str, ...], document: Any) -> Iterator[type[BaseModel]]:
    """The models that may stand at ``path`` inside ``model``, where ``document`` was to be one."""
    if not path:
        yield model
        return
    key, value = path[0], document[path[0]]
    if issubclass(model, Frozen) and key in model.short:
        key, said = model.short[key]
        value = {**value, **said}
    field = model.model_fields.get(model.renamed.get(key, key) if issubclass(model, Frozen) else key)
    if field is not None:
        yield from _models_of(Annotated[(field.annotation, *field.metadata, None)], path[1:], value)


def _models_of(annotation: Any, path: tuple[str, ...], document: Any) -> Iterator[type[BaseModel]]:
    """The models that may stand at ``path`` inside a value of this type, where ``document`` was to be one."""
    readers = [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, ReadBy)]
    if readers:
        yield from _models_at(readers[0].model_of(document), path, document)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _models_at(annotation, path, document)
    elif get_origin(annotation) is dict:
        if path:
            yield from _models_of(get_args(annotation)[1], path[1:], document[path[0]])
    else:
        kinds = [
            extra.discriminator
            for extra in getattr(annotation, "__metadata__", ())
            if isinstance(extra, FieldInfo) and extra.discriminator
        ]
        for form in get_args(get_args(annotation)[0]) if kinds else get_args(annotation):
            if not kinds or document[kinds[0]] in get_args(form.model_fields[kinds[0]].annotation):
                yield from _models_of(form, path, document)
