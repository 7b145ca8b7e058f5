"""Real nodes with a job of each kind, and a real Chromium that looks at their boards."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "node"))  # the modules that a forked node runs

from nodes import THREE, Federation

from vfl_node.configuration.models import parse
from vfl_node.job import Job

AXE = Path(__file__).parents[2] / "build" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
"""Where ``make test-browser`` puts the rules of accessibility."""

NETWORK = """
train: {epochs: 6, batch_size: 32, patience: 6}
evaluate: {test_fraction: 0.2, validation_fraction: 0.2, metrics: [auc, nll]}
serve: {to: both}
"""
HIDDEN = """
name: hidden
parties: {active: clinic, passive: lab, coordinator: notary}
train: {algorithm: hidden, epsilon: 100, epochs: 3, shared_fraction: 0.5}
evaluate: {test_fraction: 0.3, metrics: [auc, nll], epsilon: 100}
"""
LOGISTIC = "align: {protocol: psi}\ntrain: {algorithm: logistic, iterations: 3, key_bits: 2048, flow: two-party}\n"
ALIGNED = "align: {protocol: psi}\n"


@pytest.fixture(scope="session")
def federation(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A clinic, a lab and a notary."""
    made = Federation(tmp_path_factory.mktemp("browser"), trial, THREE)
    made.start_three()
    yield made
    made.end_all()


@pytest.fixture(scope="session")
def jobs(federation: Federation) -> dict[str, str]:
    """What happened → the job's id: each kind of job, each way to end and one that waits."""
    found = {}
    clinic = federation.client("clinic")
    found["hidden"] = clinic.submit(parse(HIDDEN, Job, source="job").canonical())["id"]
    for name, text in {"network": NETWORK, "logistic": LOGISTIC, "aligned": ALIGNED}.items():
        found[name] = federation.submit(text)
    for name in tuple(found):
        assert federation.end("clinic", found[name])["state"] == "done", name
    found["failed"] = federation.submit("tables: {lab: absent}\n")
    federation.end("clinic", found["failed"])
    federation.kill("lab")
    found["waiting"] = federation.submit(NETWORK)
    found["cancelled"] = federation.submit(NETWORK)
    clinic.cancel(found["cancelled"])
    federation.end("clinic", found["cancelled"])
    return found


class Browser:
    """One Chromium with a session at the clinic's board.

    Attributes:
        driver: of selenium.
    """

    def __init__(self, driver: Any, federation: Federation) -> None:
        self.driver, self._federation = driver, federation

    def log_in(self, path: str = "/") -> None:
        """Open the board by a link, as ``vfl-node board`` prints it."""
        self.driver.get(self._federation.client("clinic").link(path))
        self.wait(lambda: "login" not in self.driver.current_url)

    def open(self, path: str) -> None:
        """A page of the clinic's board, once it is loaded."""
        self.driver.get(f"http://{self._federation.running('clinic')['http']}{path}")
        self.wait(lambda: self.run("return document.readyState") == "complete")

    def run(self, script: str, *arguments: Any) -> Any:
        """What ``script`` returns in the page."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait until ``condition`` holds; return what it gave."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, poll_frequency=0.1).until(lambda _: condition())

    def show(self, width: int, scheme: str = "light", height: int = 900) -> None:
        """Be a screen of this width, in light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        """What the browser has refused or found wrong since this was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def faults(self) -> list[str]:
        """What axe-core finds serious, and where."""
        self.run(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script("axe.run({resultTypes: ['violations']}).then(arguments[0])")
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {node['html'][:150]}" for one in serious for node in one["nodes"]]


@pytest.fixture(scope="session")
def chromium(federation: Federation) -> Iterator[Callable[..., Browser]]:
    """Starts browsers; skips visibly where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: make test-browser")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    if not AXE.exists():
        pytest.skip("needs axe-core: make test-browser")
    started = []

    def start(*, script: bool = True) -> Browser:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        if not script:
            options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
        started.append(webdriver.Chrome(options, webdriver.ChromeService(driver)))
        return Browser(started[-1], federation)

    yield start
    for each in started:
        each.quit()


@pytest.fixture(scope="session")
def browser(chromium: Callable[..., Browser], jobs: dict[str, str]) -> Browser:
    """One that has logged in."""
    made = chromium()
    made.log_in()
    return made
