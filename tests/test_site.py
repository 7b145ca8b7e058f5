"""The site of the pages: read as forges read them, and made of what lies here. ``make site`` shows what MkDocs says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "mkdocs.yml").read_text()


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "site" / "hooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rendered(hooks: ModuleType, markdown: str, at: str = "index.md") -> str:
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(ROOT / "docs" / at)))
    text: str = hooks.on_page_markdown(markdown, page, SimpleNamespace(docs_dir=str(ROOT / "docs")), None)
    return text.rstrip("\n")


def test_a_list_begins_after_an_empty_line_and_is_indented_by_four(hooks: ModuleType) -> None:
    markdown = "Text:\n- one\n  goes on\n  - below\n    goes on\n- two\n\nText\n\n1. first\n   - below\n2. second"
    assert rendered(hooks, markdown) == (
        "Text:\n\n- one\n    goes on\n    - below\n        goes on\n- two\n\nText\n\n1. first\n    - below\n2. second"
    )


def test_code_is_left_alone(hooks: ModuleType) -> None:
    for markdown in ("```yaml\na:\n  - b\n```", "Text\n\n    - four spaces\n    are code", "a\n\n```text\n- x\n  - y\n```\nb"):
        assert rendered(hooks, markdown) == markdown


def test_code_below_an_item_is_indented_with_it(hooks: ModuleType) -> None:
    assert rendered(hooks, "- one\n\n  ```sh\n  ls -l\n  ```\n- two") == "- one\n\n    ```sh\n    ls -l\n    ```\n- two"


def test_a_link_out_of_the_pages_becomes_a_name(hooks: ModuleType) -> None:
    assert rendered(hooks, "[index](index.md#there)") == "[index](index.md#there)"
    assert rendered(hooks, "[to](../docs/index.md#a)") == "[to](index.md#a)"
    assert rendered(hooks, "[the code](../README.md)") == "the code (`README.md`)"
    assert rendered(hooks, "[`vfl_node/roles.py`](../../vfl_node/roles.py)", "experiments/README.md") == "`vfl_node/roles.py`"
    for kept in ("[a](https://example.org/a)", "![a picture](images/report.png)", "[here](#below)", "[no page](gone.md)"):
        assert rendered(hooks, kept) == kept


def test_the_parts_stand_in_their_order(hooks: ModuleType) -> None:
    def page(path: str) -> Any:
        return SimpleNamespace(is_section=False, is_homepage=path == "index.md", file=SimpleNamespace(src_uri=path))

    def section(*paths: str) -> Any:
        return SimpleNamespace(is_section=True, title="", children=[page(path) for path in paths])

    folders = ["decisions", "experiments", "explanations", "guides", "reference"]
    items = [page("glossary.md"), *(section(f"{folder}/a.md") for folder in folders), page("index.md")]
    nav = hooks.on_nav(SimpleNamespace(items=items), None, None)
    assert [nav.items[0].title, nav.items[-1].file.src_uri] == ["Start", "glossary.md"]
    assert [item.title for item in nav.items[1:-1]] == ["Guides", "Reference", "Explanations", "Experiments", "Decisions"]


def test_the_site_names_no_host_and_only_files_that_are_here() -> None:
    assert "://" not in CONFIG.replace("site_url", "")
    assert "font: false" in CONFIG
    assert "strict: true" in CONFIG
    for name in re.findall(r"\bassets/[\w./-]+", CONFIG):
        assert (ROOT / "site" / "theme" / name).is_file(), name
    for path in (ROOT / "site" / "theme").rglob("*.css"):
        assert "url(" not in path.read_text()
