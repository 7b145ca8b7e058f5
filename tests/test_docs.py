"""The pages refer to what exists: links, headings and files of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "experiments/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # names what is no longer there
)
FOLDERS = ("", "vfl_node", "vfl_node/training", "vfl_node/training/split")
"""Where a page may say a file lies: pages of a package leave out its folder."""

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def headings(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@page
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not heading or heading in headings(path), target


@page
def test_files_of_the_code_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"`([\w./]+\.(?:py|proto))(?:::\w+)?`", page.read_text()):
        if "/" in name:
            assert any((ROOT / folder / name).exists() for folder in (*FOLDERS, str(page.parent))), name
