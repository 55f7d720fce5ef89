"""A headless Chromium, driven over its DevTools protocol: opens pages and takes screenshots."""

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
FASTER = 100
"""How much faster than on a reader's screen colours change and elements move."""
TIMEOUT = 20.0
"""Seconds to wait for the browser to start, or for a page to reach a condition."""


class ChromiumError(Exception):
    """The browser did not start, or a page did not reach a condition in time."""


class Tab:
    """One page. `requested` lists the URLs that it has asked for, and `faults` what its console shows as an error."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._last = 0
        self.requested: list[str] = []
        self.faults: list[str] = []
        for domain in ("Animation", "Log", "Network", "Page", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Animation.setPlaybackRate", playbackRate=FASTER)  # `wait` and the audit wait for their ends

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result. Events that arrive meanwhile update `requested`."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv())
            if message.get("method") == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            self.faults += _faults(message)
            if message.get("id") != self._last:
                continue
            if "error" in message:
                raise ChromiumError(f"{method}: {message['error']['message']}")
            result: dict[str, Any] = message["result"]
            return result

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise ChromiumError(f"{expression}: {result['exceptionDetails'].get('text')}")
        return result["result"].get("value")

    def open(self, url: str, *, until: str = "true") -> None:
        """Open a page. Wait until it is loaded, `until` is true and no animation runs."""
        self.call("Page.navigate", url=url)
        here = f"location.href.startsWith({url.partition('#')[0]!r}) && document.readyState === 'complete'"
        self.wait(f"{here} && ({until})")

    def wait(self, until: str, *, at_rest: bool = True) -> None:
        """Wait until an expression is true and, with `at_rest`, no animation runs."""
        if at_rest:
            until = f"{until} && document.getAnimations().every((each) => each.playState !== 'running')"
        deadline = time.monotonic() + TIMEOUT
        while not self.evaluate(f"Boolean({until})"):
            if time.monotonic() > deadline:
                raise ChromiumError(f"the page did not reach the condition in {TIMEOUT} s: {until}")
            time.sleep(0.05)

    def set_window(self, *, width: int, height: int, scheme: str, scale: float = 1.0) -> None:
        """Set the size of the window, in CSS pixels, and its preferred scheme, `light` or `dark`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, of: str | None = None, *, margin: int = 0) -> bytes:
        """Return a PNG of what the window shows, or of the first element of a selector with a margin in CSS pixels."""
        part: dict[str, Any] = {}
        if of is not None:
            box = self.evaluate(f"document.querySelector({of!r}).getBoundingClientRect().toJSON()")
            size = {"width": box["width"] + 2 * margin, "height": box["height"] + 2 * margin}
            part["clip"] = {"x": box["x"] - margin, "y": box["y"] - margin, "scale": 1, **size}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **part)["data"])


def _faults(event: dict[str, Any]) -> list[str]:
    """Return what an event says went wrong in the page."""
    said: dict[str, Any] = event.get("params", {})
    match event.get("method"):
        case "Runtime.exceptionThrown":
            return [str(said["exceptionDetails"])]
        case "Runtime.consoleAPICalled" if said["type"] in {"error", "assert"}:
            return [str(said["args"])]
        case "Log.entryAdded" if said["entry"]["level"] == "error":
            return [f"{said['entry']['text']} {said['entry'].get('url', '')}"]
        case _:
            return []


def find() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def tab(program: str) -> Generator[Tab]:
    """Run a browser for the duration of the context and return its tab.

    Raises:
        ChromiumError: The browser did not start.
    """
    import websocket  # noqa: PLC0415  a build without Chromium needs none

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(  # noqa: S603  a program found on the path, with our own switches
            [program, *SWITCHES, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = _port(Path(folder, "DevToolsActivePort"))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as listed:
                pages = [each for each in json.load(listed) if each["type"] == "page"]
            socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=TIMEOUT)
            try:
                yield Tab(socket)
            finally:
                socket.close()
        finally:
            process.terminate()
            process.wait()


def _port(file: Path) -> int:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        lines = file.read_text().splitlines() if file.exists() else []
        if lines:
            return int(lines[0])
        time.sleep(0.05)
    raise ChromiumError("Chromium did not start")
