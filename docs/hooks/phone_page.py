"""Screenshots of the sandbox's page, taken by each build from a running sandbox.

Without Chromium the build uses the committed pictures and logs that. With CI_REQUIRE_ALL=1 it fails instead. Run this
file as a program to renew the committed pictures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import chromium
from pictures import replace

from momopay import Client
from momopay.sandbox import Outcome, Sandbox, phone_for

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

SCHEMES = ("light", "dark")
VIEWS = {"phone": None, "prompt": ".phone"}
"""What is shown, and which element of the page is the picture."""
NAME = "assets/{view}-{scheme}.png"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the committed pictures by new ones (a hook of mkdocs)."""
    from mkdocs.exceptions import PluginError  # noqa: PLC0415  not needed to renew the pictures
    from mkdocs.plugins import get_plugin_logger  # noqa: PLC0415  as above

    logger = get_plugin_logger("phone_page")
    if chromium.find() is None:
        if os.environ.get("CI_REQUIRE_ALL") == "1":
            raise PluginError("the screenshots of the sandbox need Chromium, which is not installed")
        logger.info("Chromium is not installed: using the committed screenshots of the sandbox")
        return files
    return replace(files, config, pictures())


@cache
def pictures() -> dict[str, bytes]:
    """Return the screenshots of a sandbox with a few payments: each view in each scheme, by file name."""
    program = chromium.find()
    if program is None:
        raise chromium.ChromiumError("Chromium is not installed")
    with Sandbox(speed=0) as sandbox, _shop() as callback_url, chromium.tab(program) as tab:
        with Client("pk_test_docs", base_url=sandbox.base_url) as client:
            _make_payments(client, sandbox, callback_url)
        taken: dict[str, bytes] = {}
        for scheme in SCHEMES:
            tab.set_window(width=1240, height=920, scheme=scheme, scale=1.5)
            for view, part in VIEWS.items():
                tab.open(f"{sandbox.url}/", until="!document.getElementById('veil').hidden")
                taken[NAME.format(view=view, scheme=scheme)] = tab.screenshot(part, margin=10)
        return taken


def _make_payments(client: Client, sandbox: Sandbox, callback_url: str) -> None:
    client.stk.initiate(
        amount=100,
        phone="0712 345 678",
        account_reference="INV-41",
        transaction_desc="Order 41",
        callback_url=callback_url,
    )
    sandbox.advance(40)
    client.payouts.initiate(amount=2500, phone="0798 765 432", reference="SALARY-2026-11-7", callback_url=callback_url)
    sandbox.advance(8)
    client.stk.initiate(
        amount=1250,
        phone=phone_for(Outcome.by_hand),
        account_reference="INV-42",
        transaction_desc="Order 42",
        callback_url=callback_url,
    )


@contextmanager
def _shop() -> Generator[str]:
    """Acknowledge callbacks on loopback; yield the URL for them."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the name in the base class

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/momo"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    for _name, _picture in pictures().items():
        (Path(__file__).parents[1] / _name).write_bytes(_picture)
