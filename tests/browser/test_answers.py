"""An owner answers a partner's job on the board, in a real Chromium."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from nodes import TWO, Federation

from tests.browser.conftest import ALIGNED, Browser
from tests.browser.test_board import SCHEMES, WIDTHS
from vfl_node.node.client import Client

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def asked(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A clinic whose owner is asked about the jobs of the lab."""
    made = Federation(tmp_path_factory.mktemp("answers"), trial, TWO)
    made.start_both()
    yield made
    made.end_all()


@pytest.fixture(scope="module")
def owner(chromium: Callable[..., Browser], asked: Federation) -> Browser:
    made = Browser(chromium().driver, asked)
    made.log_in()
    return made


def submit(asked: Federation) -> str:
    job_id = str(asked.client("lab").submit(asked.trial.job(ALIGNED).canonical())["id"])
    asked.wait_until(lambda: asked.view("clinic", job_id).get("state") == "asked")
    return job_id


def press(owner: Browser, selector: str) -> None:
    owner.run("document.querySelector(arguments[0]).click()", selector)


def test_the_pages_have_no_serious_fault_and_fit_their_screen(owner: Browser, asked: Federation) -> None:
    job_id = submit(asked)
    for path, width, scheme in product(("/", f"/jobs/{job_id}"), WIDTHS, SCHEMES):
        owner.show(width, scheme)
        owner.open(path)
        assert owner.faults() == [], (path, width, scheme)
        assert owner.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, path
    assert owner.complaints() == []
    asked.client("clinic").refuse(job_id, "other")


def test_an_owner_finds_the_job_looks_at_it_and_lets_it_run(owner: Browser, asked: Federation) -> None:
    job_id = submit(asked)
    owner.show(1400)
    owner.open("/")
    assert "waits for you" in owner.run("return document.body.innerText")
    press(owner, f'#top a[href="/jobs/{job_id}"]')
    owner.wait(lambda: "asks to run" in owner.run("return document.querySelector('h1').innerText"))
    press(owner, "[data-open=approve]")
    assert owner.run("return document.getElementById('approve').open")
    press(owner, "#approve [value=no]")  # back
    assert asked.view("clinic", job_id)["state"] == "asked"
    press(owner, "[data-open=approve]")
    press(owner, "#approve [value=yes]")
    for name in asked.roles:
        assert asked.end(name, job_id)["state"] == "done"
    assert asked.client("clinic").manifest(job_id)["decision"]["verdict"] == "approve"
    owner.wait(lambda: "asks to run" not in owner.run("return document.querySelector('h1')?.innerText ?? ''"))


def test_an_owner_refuses_with_a_reason_and_a_note(owner: Browser, asked: Federation) -> None:
    job_id = submit(asked)
    owner.open(f"/jobs/{job_id}")
    press(owner, "[data-open=refuse]")
    owner.run("document.querySelector('#refuse select').value = 'budget'")
    owner.run("document.querySelector('#refuse input[name=note]').value = 'not again'")
    press(owner, "#refuse [value=yes]")
    assert "its owner's reason: budget" in asked.end("lab", job_id)["error"]["message"]
    owner.wait(lambda: "You refused this job." in owner.run("return document.body.innerText"))
    assert asked.client("clinic").manifest(job_id)["decision"]["note"] == "not again"


def test_what_another_job_asks_for_by_now_is_not_approved(owner: Browser, asked: Federation) -> None:
    """The page is old, or its form was changed: what it names is not what waits."""
    job_id = submit(asked)
    owner.open(f"/jobs/{job_id}")
    owner.run("document.querySelector('#approve [name=digest]').value = '0'.repeat(64)")
    press(owner, "[data-open=approve]")
    press(owner, "#approve [value=yes]")
    owner.wait(lambda: "is not the digest of" in owner.run("return document.getElementById('answer').innerText"))
    assert asked.view("clinic", job_id)["state"] == "asked"
    asked.client("clinic").refuse(job_id, "other")


def test_two_persons_approve_one_after_the_other(chromium: Callable[..., Browser], owner: Browser, asked: Federation) -> None:
    """Each in a browser of their own, let in by a link of their own; the owner's browser is no person."""
    at_clinic = asked.client("clinic")
    browsers = {}
    for name in ("anna", "bert"):
        token = at_clinic.create_token(name, ["approver"], 1)
        browsers[name] = Browser(chromium().driver, asked)
        browsers[name].driver.get(Client(asked.running("clinic")["http"], token).link())
        browsers[name].wait(lambda name=name: "login" not in browsers[name].driver.current_url)
    before = (asked.folder / "clinic" / "policy.yaml").read_text()
    at_clinic.apply_policy(yaml.safe_dump(yaml.safe_load(before) | {"approve": [{"name": "both", "by": "two"}]}))
    try:
        job_id = submit(asked)
        owner.open(f"/jobs/{job_id}")
        assert "Two persons must say yes." in owner.run("return document.body.innerText")
        approve(owner)
        owner.wait(lambda: "nobody is named" in owner.run("return document.getElementById('answer').innerText"))
        browsers["anna"].open(f"/jobs/{job_id}")
        approve(browsers["anna"])
        browsers["anna"].wait(lambda: "anna has" in browsers["anna"].run("return document.body.innerText"))
        assert browsers["anna"].faults() == []
        assert asked.view("clinic", job_id)["state"] == "asked"
        browsers["bert"].open("/")
        assert "anna has said yes" in browsers["bert"].run("return document.body.innerText")
        browsers["bert"].open(f"/jobs/{job_id}")
        approve(browsers["bert"])
        for name in asked.roles:
            assert asked.end(name, job_id)["state"] == "done"
        assert at_clinic.manifest(job_id)["decision"]["persons"] == ["anna", "bert"]
    finally:
        at_clinic.apply_policy(before)


def approve(browser: Browser) -> None:
    press(browser, "[data-open=approve]")
    press(browser, "#approve [value=yes]")


def test_an_owner_approves_by_keys_alone(owner: Browser, asked: Federation) -> None:
    from selenium.webdriver.common.keys import Keys

    job_id = submit(asked)
    owner.open(f"/jobs/{job_id}")
    owner.run("document.activeElement.blur()")
    reach(owner, "[data-open=approve]")
    owner.driver.switch_to.active_element.send_keys(Keys.ENTER)
    owner.wait(lambda: owner.run("return document.getElementById('approve').open"))
    reach(owner, "#approve [value=yes]")
    owner.driver.switch_to.active_element.send_keys(Keys.ENTER)
    for name in asked.roles:
        assert asked.end(name, job_id)["state"] == "done"


def reach(browser: Browser, selector: str) -> None:
    """Press Tab until this has the focus."""
    from selenium.webdriver.common.keys import Keys

    for _ in range(60):
        if browser.run("return document.activeElement.matches(arguments[0])", selector):
            return
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    raise AssertionError(f"no way to {selector} by Tab")


def test_a_page_of_another_origin_answers_nothing(chromium: Callable[..., Browser], owner: Browser, asked: Federation) -> None:
    """A form and a request of a page elsewhere, in the owner's browser; the button of the board is the control."""
    job_id = submit(asked)
    digest = asked.client("clinic").manifest(job_id)["digest"]
    target = f"http://{asked.running('clinic')['http']}/api/jobs/{job_id}/approve"
    with elsewhere() as origin:
        owner.driver.get(origin)
        told = owner.driver.execute_async_script(
            "const done = arguments[2];"
            "fetch(arguments[0], {method: 'POST', credentials: 'include', body: JSON.stringify({digest: arguments[1]})})"
            ".then(answer => done(answer.status), error => done(String(error)))",
            target,
            digest,
        )
        assert "TypeError" in str(told)  # it is told nothing
        owner.run(
            "const form = document.createElement('form'); form.method = 'POST'; form.action = arguments[0];"
            "form.innerHTML = '<input name=digest>'; form.elements[0].value = arguments[1];"
            "document.body.append(form); form.submit()",
            target,
            digest,
        )
        owner.wait(lambda: owner.driver.current_url == target)
        assert "E_TOKEN" in owner.run("return document.body.innerText")  # the browser has sent no cookie there
    assert asked.view("clinic", job_id)["state"] == "asked"
    owner.complaints()
    owner.open(f"/jobs/{job_id}")
    approve(owner)
    assert asked.end("clinic", job_id)["state"] == "done"


@contextmanager
def elsewhere() -> Iterator[str]:
    """An empty page of another origin."""
    with TemporaryDirectory() as folder:
        Path(folder, "index.html").write_text("<!doctype html><title>elsewhere</title><body></body>")
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=folder)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://localhost:{server.server_port}/"
            server.shutdown()


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


HOSTILE = "<script>window.acted = 1</script><img src=x onerror='window.acted = 1'> {{ 7*7 }} </dd></p>"


def test_a_purpose_that_acts_is_text_on_every_page(owner: Browser, asked: Federation) -> None:
    job = asked.trial.job(f"{ALIGNED}purpose: {json.dumps(HOSTILE)}\n")
    job_id = str(asked.client("lab").submit(job.canonical())["id"])
    asked.wait_until(lambda: asked.view("clinic", job_id).get("state") == "asked")
    owner.complaints()
    for path in ("/", f"/jobs/{job_id}"):
        owner.open(path)
        assert HOSTILE in owner.run("return document.body.innerText"), path
        assert owner.run("return window.acted ?? document.querySelectorAll('img[src=x]').length") == 0, path
    assert owner.complaints() == []
    asked.client("clinic").refuse(job_id, "purpose")
