"""One canonical form of an identifier, so that two parties' spellings of one record meet.

Alignment compares bytes. The same identifier may be written with composed or decomposed
accents, full-width digits, invisible characters, another case or leading zeros; what counts
as a difference is the job's ``id_form``, which both parties agree on.

Source: Unicode Standard Annex 15 (NFKC); section 3.13, definition 146 of the standard (caseless matching).
"""

from __future__ import annotations

import re
from typing import Literal
from unicodedata import normalize

from vfl_node.errors import DataError

IdForm = Literal["text", "nocase", "integer"]
"""``text`` keeps case; ``nocase`` folds it; ``integer`` compares as numbers: ``007`` is ``7``."""

ZERO_WIDTH = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
"""Characters without any width, which an export may leave in a cell; for ``str.translate``."""

_INTEGER = re.compile(r"([+-]?)0*([0-9]+)")


def canonical(value: str, form: IdForm) -> bytes:
    """The bytes that stand for ``value``: UTF-8 behind the name of the form, so that forms never collide.

    Zero-width characters and white space at the ends are dropped and compatibility variants
    are unified (NFKC). Idempotent. Unicode keeps NFKC stable for characters that are assigned
    already; one that only one party's Python knows may still differ.

    Raises:
        DataError: nothing is left, it is no integer though the form is ``integer``, or it is
            not valid Unicode (``E_ID``). The text never holds the value.
    """
    text = value if value.isascii() else normalize("NFKC", value.translate(ZERO_WIDTH))
    if form == "nocase":
        text = text.lower() if text.isascii() else _fold(text)
    text = text.strip()
    if not text:
        raise DataError("the identifier is empty", code="E_ID", hint="give every row an identifier, or remove the row")
    if form == "integer":
        text = _integer(text)
    try:
        return f"{form}:{text}".encode()
    except UnicodeEncodeError:  # its own text would show the identifier
        raise DataError("the identifier is not valid Unicode", code="E_ID", hint="save the file as UTF-8") from None


def _fold(text: str) -> str:
    """Unicode's compatibility caseless form; one round is not enough, as folding and NFKC feed each other."""
    once = normalize("NFKC", normalize("NFD", text).casefold())
    return normalize("NFKC", once.casefold())


def _integer(text: str) -> str:
    """Decimal digits without leading zeros, behind a minus sign if negative; of any length."""
    match = _INTEGER.fullmatch(text)
    if not match:
        raise DataError(
            "the identifier is not an integer",
            code="E_ID",
            hint="align.id_form is 'integer': ids are digits with an optional sign; for others agree on 'text' or 'nocase'",
        )
    sign, digits = match.groups()
    return f"-{digits}" if sign == "-" and digits != "0" else digits
