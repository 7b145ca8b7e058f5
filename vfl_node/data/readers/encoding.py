"""A file in another encoding than UTF-8, as its owner declares it: its text, in UTF-8.

Nothing is guessed. A file that is not in the declared encoding is refused at the first byte that does not fit.
"""

from __future__ import annotations

import codecs
import re

from vfl_node.data.readers.input_file import InputFile
from vfl_node.errors import DataError
from vfl_node.settings.declared import ENCODINGS, Encoding

_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

_NO_LETTER = re.compile("[\x80-\x9f]")
"""Control characters that no table has: where a file is declared Latin-1, these bytes are letters of Windows (cp1252)."""

_OTHER = {"gbk": "gb18030", "latin-1": "cp1252"}
"""Encoding → the one with more characters that is often called so."""


class DecodedFile:
    """What a CSV needs of an :class:`~vfl_node.data.readers.input_file.InputFile`, with its text in UTF-8.

    Args:
        file: at its beginning; closed by whoever opened it.
        encoding: of its text.

    Attributes:
        source: as of the file, for errors.

    Raises:
        DataError: the file begins with the mark of another encoding, or without the one that it needs (``E_CSV``).
    """

    def __init__(self, file: InputFile, encoding: Encoding) -> None:
        self.source = file.source
        self._file, self._encoding = file, encoding
        self._begin()

    def rewind(self) -> None:
        """Go back to the beginning of the text. Raises: as :meth:`InputFile.rewind`."""
        self._file.rewind()
        self._begin()

    def read(self, size: int) -> bytes:
        """The next text, of ``size`` bytes in the file and up to twice as many here; empty at the end.

        Raises:
            DataError: a byte is none of the encoding (``E_CSV``), or as :meth:`InputFile.read`.
            StateError: as :meth:`InputFile.read`.
        """
        while data := self._file.read(size):
            if text := self._decode(data):
                return text
        return self._decode(b"", final=True)

    def _begin(self) -> None:
        self._line, name = 1, str(self._encoding)
        if self._file.starts_with(codecs.BOM_UTF8):
            hint = "leave data.encoding out"
            raise DataError(f"{self.source}: is UTF-8 by its first bytes, not {name}", code="E_CSV", hint=hint)
        if self._encoding == "utf-16":
            mark = self._file.read(len(codecs.BOM_UTF16_LE))
            if mark not in _MARKS:
                raise DataError(
                    f"{self.source}: has no byte order mark, so it is not known which byte of its characters comes first",
                    code="E_CSV",
                    hint="save the file as UTF-16 with a byte order mark, or as UTF-8",
                )
            name = _MARKS[mark]
        self._decoder = codecs.getincrementaldecoder(name)()

    def _decode(self, data: bytes, *, final: bool = False) -> bytes:
        try:
            text = self._decoder.decode(data, final)
            wrong = _NO_LETTER.search(text) if self._encoding == "latin-1" else None
            if wrong:
                raise self._refusal(text[: wrong.start()])
            self._line += text.count("\n")
            return text.encode()
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            raise self._refusal(before.decode(error.encoding, "replace")) from None

    def _refusal(self, before: str) -> DataError:
        """The error of a byte that does not fit, after the text ``before`` since the last line that was counted."""
        likely = _OTHER.get(self._encoding)
        others = ", ".join(name for name in ENCODINGS if name not in (likely, self._encoding))
        return DataError(
            f"{self.source}:{self._line + before.count(chr(10))}: is not {self._encoding} text",
            code="E_CSV",
            hint=f"set data.encoding to {f'{likely}, or to what else' if likely else 'what'} the file is: {others}",
        )
