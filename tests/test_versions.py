from __future__ import annotations

from typing import Any

import pytest

from vfl_node.configuration.versions import current, parse
from vfl_node.errors import StateError

SAID = {"what": "the thing", "hint": "make it again"}
STEPS = {1: lambda old: {"columns": [old["column"]]}, 2: lambda old: {**old, "kind": "new"}}


def test_a_document_of_this_version_is_read_as_it_is() -> None:
    assert current({"version": 3, "columns": []}, 3, STEPS, **SAID) == {"columns": []}
    assert parse('{"columns": []}', 1, {}, **SAID) == {"columns": []}  # without a number: version 1


def test_an_earlier_document_is_brought_up_step_by_step() -> None:
    assert current({"column": "a"}, 3, STEPS, **SAID) == {"columns": ["a"], "kind": "new"}
    assert current({"version": 2, "columns": []}, 3, STEPS, **SAID) == {"columns": [], "kind": "new"}


@pytest.mark.parametrize(("document", "said"), [({"version": 4}, "a later vfl-node"), ({"version": 0}, "an earlier vfl-node")])
def test_another_version_is_refused_with_what_to_do(document: dict[str, Any], said: str) -> None:
    with pytest.raises(StateError, match=said) as caught:
        current(document, 3, STEPS, **SAID)
    assert (caught.value.code, caught.value.hint) == ("E_STATE_VERSION", "make it again")
    assert "thing" not in caught.value.for_peer


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "1"}', '{"version": true}', '{"version": null}', "[" * 100_000])
def test_what_is_no_document_is_damaged(text: str) -> None:
    with pytest.raises(StateError, match="the thing is damaged") as caught:
        parse(text, 1, {}, **SAID)
    assert caught.value.code == "E_STATE_CORRUPT"
