"""Who may use which route: every cell of the table in docs/reference/http-roles.md, tried at the routes that the port has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.web.shown_node import TOKEN, View, browser
from vfl_node.trust.audit_log import AuditLog
from vfl_node.trust.people import OWNER, PERSON_ROLES, Person
from vfl_node.trust.tokens import Tokens
from vfl_node.web.access import Access, OwnersSocket
from vfl_node.web.app import create_app
from vfl_node.web.gate import guard
from vfl_node.web.roles import ROWS

PAGE = Path(__file__).parents[2] / "docs/reference/http-roles.md"
COLUMNS = ("none", *PERSON_ROLES, "browser")
PLACES = {"job_id": "running-1", "request_id": "0123456789abcdef", "name": "lab", "place": "board.css"}


class Staff:
    """One person for each role, of the same name, whose token is the name."""

    def get(self, name: str) -> Person | None:
        roles = [role for role in PERSON_ROLES if role == name]
        return Person(name, frozenset(roles)) if roles else None

    find = get


@cache
def table() -> dict[str, dict[str, str]]:
    """Route → column → cell, as the page shows it."""
    lines = re.findall(r"^\| `((?:GET|POST|DELETE) /[^`]*)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    cells = {route: [cell.strip() for cell in rest.split("|")] for route, rest in lines}
    return {route: dict(zip(COLUMNS, row, strict=True)) for route, row in cells.items() if len(row) == len(COLUMNS)}


def routes(app: Any) -> Iterator[tuple[str, str]]:
    """Method and path of each route that the port has."""
    for route in app.routes:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            yield method, route.path


def ask(client: TestClient, method: str, path: str, **headers: str) -> int:
    """The status of the answer; of a stream, without its events."""
    place = re.sub(r"{(\w+)}", lambda found: PLACES[found[1]], path)
    if place.endswith("/events"):
        place = place.replace("running-1", "done-1")  # a job that has ended: its events end, too
    return client.request(method, place, headers=headers, content="name: x", follow_redirects=False).status_code


def port(view: View, access: Access) -> dict[str, Any]:
    """What an app of a node has that gives people tokens."""
    return {"token": access, "tokens": Tokens(view.folder), "audit": AuditLog(view.folder)}


def expect(cell: str, status: int) -> bool:
    """Whether this is the status that the cell means; the job of the tests is nobody's own."""
    return status not in (401, 403) if cell == "yes" else status == (403 if cell == "own" else int(cell))


def test_each_route_has_a_row_and_each_row_a_route(view: View) -> None:
    served = {f"{method} {path}" for method, path in routes(create_app(view, **port(view, Access(TOKEN))))}
    assert served == ROWS.keys()
    assert served == table().keys()


def test_a_route_without_a_row_is_not_served() -> None:
    with pytest.raises(LookupError, match="POST /api/new"):
        guard([Route("/api/new", lambda request: Response(), methods=["POST"])], Access(TOKEN))


@pytest.mark.parametrize("route", ROWS)
@pytest.mark.parametrize("column", COLUMNS)
def test_each_cell_is_what_the_page_says(view: View, route: str, column: str) -> None:
    method, path = route.split(" ")
    access = Access(TOKEN, party="clinic", people=Staff())
    cell = table()[route][column]
    pressed = {"X-Vfl-Board": path.rpartition("/")[2], "Origin": "http://127.0.0.1:8080"}
    if column != "browser":
        headers = {} if column == "none" else {"Authorization": f"Bearer {column}"}
        status = ask(browser(view, **port(view, access), headers={}), method, path, **headers)
        assert expect("yes" if route == "POST /login" else cell, 200 if (route, status) == ("POST /login", 403) else status)
        return
    client = browser(view, **port(view, access), headers={})
    client.post("/login", content=access.ticket(OWNER))
    by_hand = 401 if cell == "page" else None
    assert expect(str(by_hand or cell), 200 if route == "POST /login" else ask(client, method, path))
    if cell == "page":
        assert expect("yes", ask(client, method, path, **pressed))
    for role in ("viewer", "submitter", "approver"):
        client = browser(view, **port(view, access), headers={})
        client.post("/login", content=access.ticket(role))
        if cell != "401" and route != "POST /login":
            assert expect(table()[route][role], ask(client, method, path, **pressed)), role


@pytest.mark.parametrize("route", ROWS)
def test_the_owner_is_admin_by_the_nodes_token_and_the_socket(view: View, route: str) -> None:
    method, path = route.split(" ")
    if route != "POST /login":
        owners = browser(view, **port(view, OwnersSocket(Access(TOKEN))), headers={})
        for client in (browser(view, **port(view, Access(TOKEN))), owners):
            assert expect(table()[route]["admin"], ask(client, method, path))


def test_a_refused_role_reads_what_it_lacks(view: View) -> None:
    client = browser(view, token=Access(TOKEN, people=Staff()), headers={"Authorization": "Bearer viewer"})
    answer = client.post("/api/jobs", content="name: x")
    assert (answer.status_code, answer.json()["code"]) == (403, "E_FORBIDDEN")
    assert answer.json()["hint"] == "it needs a token with the role admin or submitter"
    assert view.submitted == []


def test_a_submitter_cancels_jobs_of_its_own(view: View) -> None:
    (route,) = [route for route, cells in table().items() if cells["submitter"] == "own"]
    assert route == "POST /api/jobs/{job_id}/cancel"
    client = browser(view, token=Access(TOKEN, people=Staff()), headers={"Authorization": "Bearer submitter"})
    for by, status in ((None, 403), ("approver", 403), ("submitter", 202)):
        view.all[0]["by"] = by
        answer = client.post("/api/jobs/running-1/cancel")
        assert answer.status_code == status
        assert status == 202 or answer.json()["code"] == "E_FORBIDDEN"
    assert view.cancelled == ["running-1"]


def test_whoever_may_not_look_gets_the_short_health(view: View) -> None:
    access = Access(TOKEN, people=Staff())
    for role, whole in (("metrics", False), ("viewer", True), ("approver", True)):
        answer = browser(view, token=access, headers={"Authorization": f"Bearer {role}"}).get("/health")
        assert ("party" in answer.json()) is whole
