"""What MkDocs must know of docs/: the order of the parts, and Markdown as forges read it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PARTS = {
    "guides": "Guides",
    "reference": "Reference",
    "explanations": "Explanations",
    "experiments": "Experiments",
    "decisions": "Decisions",
}
"""Folders of docs/ in the order of their tabs. Their pages follow from the folders, by title."""

ITEM = re.compile(r"( *)(?:[-*+]|\d+\.) ")
FENCE = re.compile(r" *(```|~~~)")
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """The start, the parts, then what else lies beside the start."""
    order = list(PARTS)
    top = [item for item in nav.items if not item.is_section]
    sections = [item for item in nav.items if item.is_section]
    for section in sections:
        folder = _folder(section)
        section.title = PARTS.get(folder, section.title)
    sections.sort(key=lambda item: order.index(_folder(item)) if _folder(item) in order else len(order))
    top.sort(key=lambda page: (not page.is_homepage, page.file.src_uri))
    for page in top:
        if page.is_homepage:
            page.title = "Start"
    nav.items = top[:1] + sections + top[1:]
    return nav


def _folder(section: Any) -> str:
    child = section.children[0]
    return _folder(child) if child.is_section else child.file.src_uri.split("/")[0]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lists as forges read them, and no link that leads out of docs/."""
    return _lists(_inner_links(markdown, Path(page.file.abs_src_path).parent, Path(config.docs_dir)))


def _inner_links(markdown: str, folder: Path, docs: Path) -> str:
    """A link to a file of the project outside of docs/ becomes the file's name: the site has no such page."""

    def said(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = (folder / target).resolve()
        if path.is_relative_to(docs.resolve()):
            return f"[{text}]({os.path.relpath(path, folder)}{found[3] or ''})"
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else target
        return text if text.strip("`") in name else f"{text} (`{name}`)"

    return LINK.sub(said, markdown)


def _lists(markdown: str) -> str:
    """Python-Markdown wants an empty line before a list, and four spaces where forges take two."""
    lines, fenced, depths = list[str](), False, list[int]()
    for line in markdown.splitlines():
        before = lines[-1] if lines else ""
        item = None if fenced else ITEM.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if item and (depths or indent < 4):
            while depths and indent < depths[-1]:
                depths.pop()
            if not depths and before.strip():
                lines.append("")
            if not depths or indent > depths[-1]:
                depths.append(indent)
            line = "    " * (len(depths) - 1) + line.lstrip(" ")
        elif depths and line.strip() and not fenced and indent <= depths[0] and not before.strip():
            depths = []
        elif depths and line.strip():
            within = [depth for depth in depths if depth < indent]
            line = "    " * len(within) + line[(within[-1] + 2 if within else 0) :]
        if FENCE.match(line):
            fenced = not fenced
        lines.append(line)
    return "\n".join(lines) + "\n"
