"""A long page of results as several short ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Page:
    """A page beside the first one.

    Args:
        name: of its file, without ``.md``.
        title: its heading.
        about: what it is for, and for whom.
        sections: how the headings of its sections begin.
    """

    name: str
    title: str
    about: str
    sections: tuple[str, ...]


def divide(text: str, first: str, parts: Sequence[Page]) -> dict[str, str]:
    """Name of a file → page: ``first`` keeps the beginning and what no other names, and links the others.

    No section is lost, and none stands twice. Raises ValueError if a page names a section that there is not.
    """
    head, *rest = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    by_page = {one.name: [each for each in rest if each.removeprefix("## ").startswith(one.sections)] for one in parts}
    for one in parts:
        for section in one.sections:
            if not any(each.removeprefix("## ").startswith(section) for each in rest):
                raise ValueError(f"{one.name}: no section begins with {section!r}")
    named = [each for sections in by_page.values() for each in sections]
    links = "".join(f"- [{one.title}]({one.name}.md)\n" for one in parts)
    kept = [each for each in rest if each not in named]
    pages = {f"{first}.md": f"{head.rstrip()}\n\nThe other pages of this experiment:\n\n{links}\n{''.join(kept)}"}
    for one in parts:
        about = f"{one.about} [The first page]({first}.md) says what is measured, and how."
        pages[f"{one.name}.md"] = f"# {one.title}\n\n{about}\n\n{''.join(by_page[one.name])}"
    return {name: page.rstrip() + "\n" for name, page in pages.items()}


def write(pages: Mapping[str, str], folder: Path) -> None:
    """Each into its file."""
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
