"""Serves the HTML files, under a policy that runs their own script and fetches nothing from elsewhere."""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.responses import HTMLResponse, Response

_SCRIPT = re.compile("<script>(.*?)</script>", re.DOTALL)


@cache
def _load(name: str) -> tuple[str, str]:
    html = files("momopay.sandbox").joinpath(name).read_text("utf-8")
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(html)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def page_response(name: str) -> Response:
    """One of the HTML files beside this one."""
    html, policy = _load(name)
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return HTMLResponse(html, headers=headers)
