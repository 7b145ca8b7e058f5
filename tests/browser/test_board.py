"""The board in a real Chromium: by eye of axe-core, at two widths, in light and dark, by keyboard, without script and live."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from nodes import Federation

from tests.browser.conftest import NETWORK, Browser

pytestmark = pytest.mark.browser

WIDTHS, SCHEMES = (1400, 390), ("light", "dark")
PAGES = ("overview", "compare", "ledger", "network", "hidden", "logistic", "aligned", "failed", "waiting", "cancelled")


def address(page: str, jobs: dict[str, str]) -> str:
    if page == "overview":
        return "/"
    if page == "ledger":
        return "/ledger"
    if page == "compare":
        return f"/compare?run={jobs['network']}&run={jobs['logistic']}"
    return f"/jobs/{jobs[page]}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_serious_fault_and_fits_its_screen(browser: Browser, jobs: dict[str, str], page: str) -> None:
    for width, scheme in product(WIDTHS, SCHEMES):
        browser.show(width, scheme)
        browser.open(address(page, jobs))
        assert browser.run("return document.querySelector('h1').innerText"), page
        assert browser.faults() == [], (page, width, scheme)
        too_wide = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert too_wide <= 0, (page, width, scheme)
    assert browser.complaints() == []


@pytest.mark.parametrize("page", PAGES)
def test_a_printed_page_is_a_document(browser: Browser, jobs: dict[str, str], page: str) -> None:
    browser.open(address(page, jobs))
    assert len(browser.driver.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 10_000


FOCUSED = "const it = document.activeElement; return it === document.body ? '' : it.tagName + '#' + it.id + ' ' + it.innerText"
REACHABLE = """
const found = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")];
return found.filter(each => each.checkVisibility() && !each.disabled && !each.closest("dialog:not([open])")).length;
"""


@pytest.mark.parametrize("page", ["overview", "network", "waiting", "failed"])
def test_the_tab_key_reaches_everything_and_submits_nothing(
    browser: Browser, federation: Federation, jobs: dict[str, str], page: str
) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(1400)
    browser.open(address(page, jobs))
    wanted, reached = browser.run(REACHABLE), []
    before = federation.client("clinic").jobs()
    for _ in range(3 * wanted + 10):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        now = browser.run(FOCUSED)
        if not now or (reached and now == reached[0] and len(reached) >= wanted):
            break
        reached.append(now)
    assert len(reached) >= wanted, (wanted, reached)
    assert [job["state"] for job in federation.client("clinic").jobs()] == [job["state"] for job in before]


def test_a_job_is_cancelled_only_by_who_means_it(browser: Browser, federation: Federation, jobs: dict[str, str]) -> None:
    """Enter in the dialog goes on, Esc goes on; the job is cancelled by the other button."""
    from selenium.webdriver.common.keys import Keys

    job = federation.submit(NETWORK)
    browser.open(f"/jobs/{job}")
    button = browser.wait(lambda: browser.driver.find_element("css selector", "[data-open=cancel]:not([hidden])"))
    for key in (Keys.ENTER, Keys.ESCAPE):
        button.send_keys(Keys.ENTER)
        browser.wait(lambda: browser.run("return document.getElementById('cancel').open"))
        assert browser.run("return document.activeElement.value") == "no"
        browser.driver.switch_to.active_element.send_keys(key)
        browser.wait(lambda: not browser.run("return document.getElementById('cancel').open"))
        assert federation.view("clinic", job)["state"] == "waiting"
    button.send_keys(Keys.ENTER)
    browser.driver.find_element("css selector", "#cancel button[value=yes]").click()
    federation.wait_until(lambda: federation.view("clinic", job)["state"] == "cancelled")
    browser.wait(lambda: "cancelled" in browser.run("return document.getElementById('state').innerText"))


def test_without_script_the_pages_say_what_they_know(
    chromium: Callable[..., Browser], browser: Browser, jobs: dict[str, str]
) -> None:
    """The session is that of the browser with script, since logging in by a link needs one."""
    plain = chromium(script=False)
    plain.open("/login")
    for cookie in browser.driver.get_cookies():
        plain.driver.add_cookie(cookie)
    for page in ("overview", "waiting", "failed"):
        plain.open(address(page, jobs))
        text = plain.driver.find_element("tag name", "main").text
        assert {"overview": "trial", "waiting": "What was agreed", "failed": "What to do"}[page] in text
    assert plain.complaints() == []


class Watched:
    """A job that a browser watches from before its training to its report."""

    def __init__(self, browser: Browser, federation: Federation) -> None:
        self._browser, self._federation = browser, federation

    def follow(self, epochs: int = 60) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its report, and the last curves that the page had while the job ran."""
        all_of_them = NETWORK.replace("epochs: 6", f"epochs: {epochs}").replace("patience: 6", f"patience: {epochs}")
        job, curves = self._federation.submit(all_of_them), {}
        self._browser.open(f"/jobs/{job}")
        self._browser.run("window.same = true")
        self._federation.start("lab")
        try:
            while "/report.html" not in self._browser.driver.current_url:
                same, points = self._browser.run(
                    "return [window.same === true, typeof job === 'object' && job?.live?.curves.points]"
                )
                curves = points or curves
                assert same or "/report.html" in self._browser.driver.current_url, "the page was loaded again while the job ran"
            return self._federation.report("clinic", job), curves
        finally:
            self._federation.kill("lab")


def assert_curves_are_those_of(report: dict[str, Any], curves: dict[str, Any]) -> None:
    epochs = report["training"]["epochs"]
    for name in ("loss", "validation_loss", "auc"):
        assert curves[name], name
        assert curves[name] == [[number, epochs[number - 1][name]] for number, _ in curves[name]]


def test_a_job_is_watched_from_its_submission_to_its_verdict(browser: Browser, federation: Federation, jobs: Any) -> None:
    browser.show(1400)
    report, curves = Watched(browser, federation).follow()
    assert_curves_are_those_of(report, curves)
    assert report["verdict"]["words"] in browser.driver.find_element("tag name", "main").text
    assert browser.complaints() == []
    for width, scheme in product(WIDTHS, SCHEMES):
        browser.show(width, scheme)
        browser.driver.refresh()
        assert browser.faults() == [], ("report", width, scheme)


def test_where_events_are_cut_off_the_page_asks_again_and_again(browser: Browser, federation: Federation, jobs: Any) -> None:
    browser.show(1400)
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/events"]})
    try:
        report, curves = Watched(browser, federation).follow(epochs=200)  # several times the two seconds after which it asks
    finally:
        browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
        browser.complaints()
    assert_curves_are_those_of(report, curves)
