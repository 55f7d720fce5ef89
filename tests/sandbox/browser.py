"""The sandbox's page in headless Chromium."""

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patience import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--window-size=1280,900",
)


class Page:
    """The page in one browser window."""

    def __init__(self, folder: Path) -> None:
        webdriver = pytest.importorskip("selenium.webdriver")
        options = webdriver.ChromeOptions()
        for switch in (*SWITCHES, f"--user-data-dir={folder}"):
            options.add_argument(switch)
        options.binary_location = CHROMIUM
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
        # Tests wait for the ends of movements: let them come a hundred times as fast.
        self.driver.execute_cdp_cmd("Animation.enable", {})
        self.driver.execute_cdp_cmd("Animation.setPlaybackRate", {"playbackRate": 100})

    def script(self, text: str) -> object:
        result: object = self.driver.execute_script(text)
        return result

    def text(self, selector: str) -> str:
        return str(self.script(f"return document.querySelector({selector!r})?.innerText ?? ''"))

    def count(self, selector: str) -> int:
        return int(str(self.script(f"return document.querySelectorAll({selector!r}).length")))

    def value(self, expression: str) -> Any:
        return self.script(f"return {expression}")

    def shows_prompt(self) -> bool:
        return self.script("return !document.getElementById('veil').hidden") is True

    def click(self, selector: str, *, then: Callable[[], bool] = lambda: True) -> None:
        """Click, and wait for what follows."""
        self.driver.find_element("css selector", selector).click()
        self.until(then)

    def unfold(self, row: str) -> None:
        """Unfold a row. What is inside is made when it is first wanted, a moment later."""
        self.click(f"{row} summary", then=lambda: self.count(f"{row} details[open] .payload") > 0)

    def fill(self, selector: str, text: str) -> None:
        box = self.driver.find_element("css selector", selector)
        box.clear()
        box.send_keys(text)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option, once it is shown. The page may draw its options anew at any moment."""
        chosen = f"""
            const box = document.querySelector({selector!r});
            if (!box?.checkVisibility() || ![...box.options].some((each) => each.value === {value!r})) return false;
            box.focus();
            box.value = {value!r};
            return box.dispatchEvent(new Event("change", {{ bubbles: true }}));
        """
        self.until(lambda: self.script(chosen) is True)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def show(self, *, width: int, scheme: str = "light") -> None:
        """Set the width of the window in CSS pixels, and the scheme that the user prefers."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader finds."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})
        return [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in tree["nodes"]
            if not node["ignored"]
        ]

    def until(self, holds: Callable[[], bool]) -> None:
        until(holds, "the page")


def new_page(folder: Path) -> Page:
    """A page in a new browser; skip the test where there is none."""
    if not (CHROMIUM and DRIVER and find_spec("selenium")):
        if os.environ.get("CI_REQUIRE_ALL") == "1":
            pytest.fail("chromium, chromedriver and selenium are required here, and one is missing")
        pytest.skip("needs selenium, chromium and chromedriver (Debian: chromium, chromium-driver)")
    return Page(folder)
