"""Pages that a reader gets through: short, in short sentences, with short cells.

Counted are words as ``wc -w`` counts them. Sentences end where a paragraph, a list item or a heading ends, and at ``.``, ``!``,
``?`` and ``:`` before a new beginning. Code is no sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]]

WORDS, README_WORDS = 2500, 1500
SENTENCE, CELL = 30, 40

FENCED = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.DOTALL | re.MULTILINE)
ENDS = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )|\n(?=#+ )|(?<=[.!?:])\s+(?=[A-Z`*\[(])")
MARKS = re.compile(r"^\s*(?:#+|[-*+]|\d+\.)\s+")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def sentences(text: str) -> list[str]:
    """Of all that is no table and no code."""
    prose = "\n".join("" if _row(line) else line for line in _uncoded(text).splitlines())
    prose = re.sub(r"^(#+ .*)$", r"\1\n", prose, flags=re.MULTILINE)
    parts = (MARKS.sub("", part).strip() for part in ENDS.split(prose))
    return [part for part in parts if part]


def cells(text: str) -> list[str]:
    rows = (line.strip().strip("|") for line in _uncoded(text).splitlines() if _row(line))
    return [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]


def words(text: str, tables: bool = True) -> int:
    lines = text.splitlines()
    return sum(len(line.split()) for line in lines if tables or not _row(line))


def _uncoded(text: str) -> str:
    return COMMENT.sub("", FENCED.sub("\n", text))


def _row(line: str) -> bool:
    return line.lstrip().startswith("|")


def faults(page: str, text: str) -> list[str]:
    """What breaks the rules, with what to look for."""
    # Tables that a program has written are as long as they are.
    counted = words(text, tables=not page.startswith(("docs/experiments/", "docs/reference/combinations.md")))
    allowed = README_WORDS if page == "README.md" else WORDS
    found = [f"{counted} words, more than {allowed}: split the page"] if counted > allowed else []
    found += [f"a sentence of {len(of.split())} words: {of[:80]!r}" for of in sentences(text) if len(of.split()) > SENTENCE]
    return found + [f"a cell of {len(of.split())} words: {of[:80]!r}" for of in cells(text) if len(of.split()) > CELL]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_so_are_its_sentences(page: str) -> None:
    found = faults(page, (ROOT / page).read_text())
    assert not found, "\n".join([f"{page}:", *found])


def test_words_sentences_and_cells_are_counted_as_a_reader_would() -> None:
    text = """# A title
Its first line. Another: `this` one is
two lines long
- an item
  - one below it
1. and a number

```sh
one two three. Four
```

| a cell | with \\| a bar |
|---|---|
Figures of .5 and 1.0 e.g. end nothing (see [there](a.md)).
"""
    assert sentences(text) == [
        "A title",
        "Its first line.",
        "Another:",
        "`this` one is\ntwo lines long",
        "an item",
        "one below it",
        "and a number",
        "Figures of .5 and 1.0 e.g. end nothing (see [there](a.md)).",
    ]
    assert cells(text) == ["a cell", "with \\| a bar", "---", "---"]
    assert words("one two\n| three | four |") == 7
    assert words("one two\n| three | four |", tables=False) == 2


def test_each_rule_finds_what_it_forbids() -> None:
    long = " ".join(["word"] * (SENTENCE + 1))
    assert [of.split(":")[0] for of in faults("docs/a.md", f"{long}.\n")] == [f"a sentence of {SENTENCE + 1} words"]
    assert faults("docs/a.md", f"| {' '.join(['word'] * CELL)} | b |\n") == []
    assert len(faults("docs/a.md", f"| {' '.join(['word'] * (CELL + 1))} | b |\n")) == 1
    many = "Two words.\n\n" * (README_WORDS // 2 + 1)
    assert faults("docs/a.md", many) == []
    assert len(faults("README.md", many)) == 1
    table = "| two words |\n" * WORDS
    assert faults("docs/experiments/a.md", table) == []
    assert len(faults("docs/a.md", table)) == 1
