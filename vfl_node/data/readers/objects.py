"""Tables in an object store that speaks the protocol of S3: an object is read as a file, and a prefix as a folder of parts.

Arrow's client asks for the ranges that it needs, so a Parquet object is never copied whole. The text of an error of the
store may name what is in it; ours has its code alone.
"""

from __future__ import annotations

import io
import re
from typing import BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs
from typing_extensions import override

from vfl_node.data.readers.input_file import InputFile, damage_of
from vfl_node.data.readers.parts import check_parts
from vfl_node.errors import DataError, StateError, UsageError
from vfl_node.settings.store import ObjectStore

_BUFFER_BYTES = 4 << 20
"""An object that is read from its beginning to its end is asked for in pieces of so many bytes."""

_CODE = re.compile(r"AWS Error ([A-Z_]+)")

_HINTS = {
    "NO_SUCH_BUCKET": "correct data.url",
    "NO_SUCH_KEY": "correct data.url",
    "RESOURCE_NOT_FOUND": "correct data.url",
    "NETWORK_CONNECTION": "correct data.store.endpoint, and data.store.ca if its authority is your own; or wait for the store",
}
_HINTS |= dict.fromkeys(
    ("SLOW_DOWN", "THROTTLING", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "REQUEST_TIMEOUT"), "wait for the store"
)
_LET_IN = "correct data.store.access_key, .secret_key and .region, or have the store let this key read the bucket"


class StoredTable:
    """An object, or the objects below a prefix.

    Args:
        url: ``s3://BUCKET/KEY``.
        store: the server.
        party: this party's name, for errors.

    Raises:
        UsageError: there is no secret where the settings say (``E_CONFIG``), or the installed pyarrow cannot take an
            authority of one's own (``E_EXTENSION``).
    """

    def __init__(self, url: str, store: ObjectStore, *, party: str) -> None:
        self.source = f"{party}: {url}"
        self.key = url.removeprefix("s3://").rstrip("/")
        self.system = connect(store, party)

    def parts(self) -> list[StoredObject] | None:
        """The objects below the prefix, by their names; None: this is an object itself.

        Raises:
            DataError: there is no part, or the store refuses (``E_FILE``); something is no part (``E_FORMAT``).
        """
        try:
            if self.system.get_file_info(self.key).type == fs.FileType.File:
                return None
            found = self.system.get_file_info(fs.FileSelector(self.key))
        except (OSError, pa.ArrowException) as error:
            raise refusal(error, self.source) or damage_of(self.source) from None
        names = {info.base_name: info for info in found}
        folders = [name for name, info in names.items() if info.type == fs.FileType.Directory]
        return [StoredObject(self, names[name].path) for name in check_parts(self.source, names, folders)]

    def whole(self) -> StoredObject:
        """The object itself."""
        return StoredObject(self, self.key)


class StoredObject:
    """One object, of which one version is read.

    Attributes:
        table: of which it is, or is a part.
        key: bucket and key.
        name: the last part of its key.
        source: party and URL, as errors name it.
    """

    def __init__(self, table: StoredTable, key: str) -> None:
        self.table, self.key, self.name = table, key, key.rpartition("/")[2]
        self.source = table.source if key == table.key else f"{table.source.rstrip('/')}/{self.name}"
        self._version: tuple[int | None, int | None] | None = None

    def open(self) -> ObjectFile:
        """Its content. Raises DataError: the store refuses (``E_FILE``)."""
        return ObjectFile(self)

    def check(self) -> None:
        """Ask for its size and time, which were those of the version that is read.

        Raises:
            DataError: they are others now (``E_CSV``), or the store refuses (``E_FILE``).
        """
        try:
            about = self.table.system.get_file_info(self.key)
        except (OSError, pa.ArrowException) as error:
            raise refusal(error, self.source) or damage_of(self.source) from None
        version = (about.size, about.mtime_ns)
        if self._version is None:
            self._version = version
        elif version != self._version:
            raise DataError(f"{self.source}: changed while it was read", code="E_CSV", hint="begin again")


class ObjectFile(InputFile):
    """An :class:`~vfl_node.data.readers.input_file.InputFile` in a store. Readings begin and end with the same version."""

    is_remote = True

    def __init__(self, found: StoredObject) -> None:
        self._found = found
        super().__init__(found.source)

    @override
    def _open(self) -> BinaryIO:
        return io.BufferedReader(self.native(), _BUFFER_BYTES)

    @override
    def native(self) -> pa.NativeFile:
        self.check()
        try:
            return self._found.table.system.open_input_file(self._found.key)
        except (OSError, pa.ArrowException) as error:
            raise refusal(error, self.source) or damage_of(self.source) from None

    @override
    def check(self) -> None:
        self._found.check()

    @override
    def refusal(self, error: OSError) -> DataError | StateError | None:
        return refusal(error, self.source)


def connect(store: ObjectStore, party: str) -> fs.S3FileSystem:
    """A client of the store; nothing is asked yet. Raises: as :class:`StoredTable`."""
    secret = store.secret_key.read(party, "data.store.secret_key") if store.secret_key else None
    options = {"region": store.region, "access_key": store.access_key, "secret_key": secret}
    if store.endpoint:
        server = urlsplit(store.endpoint)
        options |= {"scheme": server.scheme, "endpoint_override": server.netloc}
    if store.ca:
        options["tls_ca_file_path"] = str(store.ca)
    try:
        return fs.S3FileSystem(**{name: value for name, value in options.items() if value is not None})
    except TypeError:
        raise UsageError(
            f"{party}: the installed pyarrow cannot take data.store.ca", code="E_EXTENSION", hint="install a newer pyarrow"
        ) from None


def refusal(error: Exception, source: str) -> DataError | None:
    """What it means that a store did not give an object; None: it did, and its content is wrong."""
    found = _CODE.search(str(error))
    if not found and not isinstance(error, FileNotFoundError):
        return None
    code = found[1] if found else "NO_SUCH_KEY"
    return DataError(f"{source}: cannot be read ({code})", code="E_FILE", hint=_HINTS.get(code, _LET_IN))
