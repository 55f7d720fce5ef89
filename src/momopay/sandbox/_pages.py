"""The two HTML pages, served under a policy that runs their own script and fetches nothing from elsewhere."""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from momopay.sandbox._guard import Guard

_SCRIPT = re.compile("<script>(.*?)</script>", re.DOTALL)
# The phone's page is kept in several files. It is served as one, which needs no policy that lets it fetch them.
_PART = re.compile(r'<link rel="stylesheet" href="(?P<style>\w+\.css)">|<script src="(?P<script>\w+\.js)"></script>')


@cache
def _load(name: str) -> tuple[str, str]:
    folder, _, file = name.rpartition("/")
    beside = files("momopay.sandbox").joinpath(folder)

    def put_in_place(found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        return f"<{kind}>\n{beside.joinpath(found[kind]).read_text('utf-8')}</{kind}>"

    html = _PART.sub(put_in_place, beside.joinpath(file).read_text("utf-8"))
    # By their hash, so that text which a caller sends could not run even if a page showed it as HTML.
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(html)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def page_response(name: str) -> Response:
    """Return one of the HTML files of this package."""
    html, policy = _load(name)
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return HTMLResponse(html, headers=headers)


def add_pages(app: FastAPI, guard: Guard) -> None:
    """Add / (the phone) and /docs (the API) to the app."""

    async def phone(request: Request) -> Response:
        # The host alone: a link on another site may lead here, as the page cannot be framed or read from there.
        guard.check_host(request.headers)
        return page_response("page/page.html")

    async def docs(request: Request) -> Response:
        guard.check_host(request.headers)
        return page_response("docs.html")

    app.add_api_route("/", phone, include_in_schema=False, response_class=Response)
    app.add_api_route("/docs", docs, include_in_schema=False, response_class=Response)
