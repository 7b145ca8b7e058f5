"""What a run of an experiment has beside the report: the card of a half and, where its owner wants that, the halves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from vfl_node.errors import UsageError
from vfl_node.export.exporting import Form, export_folder
from vfl_node.export.folders import MODEL
from vfl_node.models import NONE_DECLARED

CARD: tuple[Form, ...] = ("card",)


@contextmanager
def write_beside(
    card_of: Path, halves: Mapping[str, Path], models: Mapping[str, str] = NONE_DECLARED
) -> Iterator[list[tuple[Path, str]]]:
    """Files that are there as long as this is open, with the folder of the run that each goes into.

    Args:
        card_of: folder of the party whose card is made, if it has a half of a model that can be exported.
        halves: party → its folder, of those whose halves are made, too, with a card each.
        models: name → ``module:Class`` of networks of the owners.

    Raises:
        UsageError: one of ``halves`` cannot be exported (``E_EXPORT``), or a package for that, or an own network, is not
            there (``E_EXTENSION``).
        StateError: as :func:`vfl_node.export.folders.open_folder`.
    """
    with TemporaryDirectory() as scratch:
        made = [
            (path, f"models/{party}")
            for party, folder in halves.items()
            for path in export_folder(folder, Path(scratch) / party, models=models)
        ]
        if (card_of / MODEL).exists():
            with _pass_over():
                made += [(path, "") for path in export_folder(card_of, Path(scratch) / "card of it", forms=CARD, models=models)]
        yield made


@contextmanager
def _pass_over() -> Iterator[None]:
    """That a half cannot be exported, or its network is not known here, is no error."""
    try:
        yield
    except UsageError as error:
        if error.code not in ("E_EXPORT", "E_EXTENSION"):
            raise
