"""An owner agrees with a partner on more of a budget, on the board in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import product
from typing import Any

import pytest

from tests.browser.conftest import Browser
from tests.browser.test_answers import press
from tests.browser.test_board import SCHEMES, WIDTHS
from tests.trust.test_new_authority_nodes import Paired

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paired]:
    made = Paired(tmp_path_factory.mktemp("agreements"), trial)
    one = {"budgets": {"extend": True}}
    made.configure("clinic", policy={"everyone": one}, http="127.0.0.1:0")
    made.start_both(everyone=one)
    yield made
    made.end_all()


@pytest.fixture(scope="module")
def owner(chromium: Callable[..., Browser], nodes: Paired) -> Browser:
    made = Browser(chromium().driver, nodes)
    made.log_in()
    return made


def ask(nodes: Paired, owner: Browser) -> str:
    """A request of the lab, of which the clinic's owner reads on the overview and goes to the page with the ledgers."""
    today = datetime.now(timezone.utc).date().isoformat()
    asked = nodes.client("lab").ask_extension("clinic", "alignments", 5, today, "a second cohort")
    nodes.wait_until(lambda: [each["id"] for each in nodes.client("clinic").extensions()] == [asked["id"]])
    owner.open("/")
    press(owner, '#top .note a[href="/ledger"]')
    owner.wait(lambda: "lab asks you for 5 more of" in owner.run("return document.body.innerText"))
    return str(asked["id"])


def state(nodes: Paired, name: str) -> str:
    return str(nodes.client(name).extensions()[0]["state"])


def test_an_owner_refuses_a_request_and_agrees_on_the_next_one(nodes: Paired, owner: Browser) -> None:
    refused = ask(nodes, owner)
    for width, scheme in product(WIDTHS, SCHEMES):
        owner.show(width, scheme)
        assert owner.faults() == [], (width, scheme)
        assert owner.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    press(owner, f"[data-open='approve-{refused}']")
    press(owner, f"dialog[id='approve-{refused}'] [value=no]")
    assert state(nodes, "clinic") == "asked"
    press(owner, f"[data-open='refuse-{refused}']")
    press(owner, f"dialog[id='refuse-{refused}'] [value=yes]")
    nodes.wait_until(lambda: state(nodes, "lab") == "refused")

    agreed = ask(nodes, owner)
    press(owner, f"[data-open='approve-{agreed}']")
    press(owner, f"dialog[id='approve-{agreed}'] [value=yes]")
    nodes.wait_until(lambda: state(nodes, "lab") == state(nodes, "clinic") == "agreed")
    owner.wait(lambda: "lab has asked for 5 more of alignments" in owner.run("return document.body.innerText"))
    assert owner.complaints() == []
