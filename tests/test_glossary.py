"""One glossary: each word once, where a reader looks for it."""

from __future__ import annotations

import re
from pathlib import Path

from vfl_node.report.terms import TERMS, anchor

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ENTRY = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE)


def key(term: str) -> str:
    return term.lower().replace("ε", "epsilon").replace("μ", "mu")


def test_words_stand_once_and_in_the_order_of_letters() -> None:
    terms = [key(term) for term in ENTRY.findall(GLOSSARY)]
    assert len(terms) > 70
    assert terms == sorted(set(terms))


def test_each_letter_has_its_words() -> None:
    for section in GLOSSARY.split("\n## ")[1:]:
        letter, _, entries = section.partition("\n")
        assert {key(term)[0].upper() for term in ENTRY.findall(entries)} == {letter}


def test_no_other_page_of_the_project_has_a_list_of_words() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text().partition("## Glossary")[2]
    assert "docs/glossary.md" in contributing
    assert not ENTRY.findall(contributing)


def test_each_word_of_a_page_has_an_anchor_of_its_own() -> None:
    anchors = {anchor(term) for term in TERMS}
    assert len(anchors) == len(TERMS)
    assert all(re.fullmatch("word(-[a-z0-9]+)+", found) for found in anchors)
    assert [anchor(term) for term in ("PR AUC", "95 % interval", "R²")] == ["word-pr-auc", "word-95-interval", "word-r2"]


def test_protocols_and_roles_are_explained() -> None:
    for word in ("`psi`", "`psu`", "`apsi`", "`linkage`", "Active party", "Passive party", "Coordinator", "Dealer"):
        assert word in GLOSSARY, word
