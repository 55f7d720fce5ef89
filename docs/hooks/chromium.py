"""Pictures of pages, by a headless Chromium that is spoken to over its own protocol. Knows nothing of what it shows."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-allow-origins=*",
    "--remote-debugging-port=0",
)
PATIENCE = 20.0
"""Seconds to wait for the browser, and for what a page is to show."""


class ChromiumError(Exception):
    """The browser did not start, or a page did not come to show what it should."""


class Tab:
    """One page."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._last = 0
        self.requested: list[str] = []
        for domain in ("Network", "Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; note meanwhile what the page asks for."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            said: dict[str, Any] = json.loads(self._socket.recv())
            if said.get("method") == "Network.requestWillBeSent":
                self.requested.append(said["params"]["request"]["url"])
            if said.get("id") != self._last:
                continue
            if "error" in said:
                raise ChromiumError(f"{method}: {said['error']['message']}")
            result: dict[str, Any] = said["result"]
            return result

    def evaluate(self, expression: str) -> Any:
        """Give the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ChromiumError(f"{expression}: {answer['exceptionDetails'].get('text')}")
        return answer["result"].get("value")

    def show(self, url: str, *, until: str = "true") -> None:
        """Open a page, and wait until it is loaded, an expression holds and nothing moves any more."""
        self.call("Page.navigate", url=url)
        still = "document.getAnimations().every((each) => each.playState !== 'running')"
        here = f"location.href.startsWith({url.partition('#')[0]!r}) && document.readyState === 'complete'"
        give_up = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({here} && ({until}) && {still})"):
            if time.monotonic() > give_up:
                raise ChromiumError(f"{url} does not come to: {until}")
            time.sleep(0.05)

    def dress(self, *, width: int, height: int, scheme: str, scale: float = 1.0) -> None:
        """Set the size of the window, in CSS pixels, and the colours that its user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self) -> bytes:
        """Take a picture of what the window shows, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


def find() -> str | None:
    """Give the way to Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def tab(program: str) -> Generator[Tab]:
    """Start a browser for as long as the context lasts.

    Raises:
        ChromiumError: It does not start.
    """
    import websocket  # noqa: PLC0415  a build without Chromium needs none

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(  # noqa: S603  a program found on the path, with switches of ours
            [program, *SWITCHES, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = _port(Path(folder, "DevToolsActivePort"))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as listed:
                pages = [each for each in json.load(listed) if each["type"] == "page"]
            socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=PATIENCE)
            try:
                yield Tab(socket)
            finally:
                socket.close()
        finally:
            process.terminate()
            process.wait()


def _port(file: Path) -> int:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        lines = file.read_text().splitlines() if file.exists() else []
        if lines:
            return int(lines[0])
        time.sleep(0.05)
    raise ChromiumError("Chromium does not start")
