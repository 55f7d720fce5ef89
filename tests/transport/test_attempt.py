"""One attempt: its request, the response chunk by chunk, and what each way to fail says of whether it was sent."""

import gzip
import socket
import ssl
import zlib
from collections.abc import Callable

import httpcore
import httpx
import pytest

from in_turn import in_turn
from momopay._transport import attempt

BODY = b'{"success": true}'
PAYOUTS = "https://api.example/v1/b2c/payouts"


def read(*chunks: bytes, status: int = 200, **headers: str) -> attempt.RawResponse:
    reader = attempt.ResponseReader(attempt.Progress())
    head = {name.replace("_", "-"): value for name, value in headers.items()}
    assert not reader.start(httpx.Response(status, headers=head, stream=httpx.ByteStream(b"")))
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def test_a_response_is_whole() -> None:
    response = read(b'{"success"', b": ", b"true}", status=201, x_id="7")
    assert (response.status, response.body, response.headers["X-Id"]) == (201, BODY, "7")


def test_a_byte_order_mark_before_a_body_is_dropped() -> None:
    assert read(b"\xef\xbb", b"\xbf" + BODY).body == BODY


def test_a_body_may_have_8_mib_and_no_byte_more() -> None:
    most = b" " * attempt.MAX_BODY
    assert len(read(most).body) == attempt.MAX_BODY
    with pytest.raises(attempt.UnreadableResponseError, match="8 MiB") as caught:
        read(most, b" ", status=502)
    assert caught.value.status == 502


def test_a_body_that_goes_on_after_the_deadline_is_no_answer() -> None:
    """One read of the network may bring many chunks, and no timer fires between them."""
    reader = attempt.ResponseReader(attempt.Progress(), attempt.now() - 1.0)
    reader.start(httpx.Response(200))
    with pytest.raises(attempt.NoReplyError, match="within the timeout") as caught:
        reader.feed(b"x")
    assert caught.value.partial == b"x"


def test_an_answer_that_a_transport_has_read_counts_however_late() -> None:
    reader = attempt.ResponseReader(attempt.Progress(), attempt.now() - 1.0)
    assert reader.start(httpx.Response(200, content=BODY))
    assert reader.finish().body == BODY


@in_turn("unit", [b"{}", b"[]"])
def test_a_body_may_have_so_many_parts_and_no_part_more(unit: bytes) -> None:
    assert read(unit * attempt.MAX_PARTS)
    with pytest.raises(attempt.UnreadableResponseError, match="too many parts") as caught:
        read(unit * attempt.MAX_PARTS, unit, status=502)
    assert caught.value.status == 502


@in_turn(
    ("encoding", "compress"),
    [("gzip", gzip.compress), (" GZIP ", gzip.compress), ("deflate", zlib.compress), ("identity", bytes), ("", bytes)],
)
def test_a_body_in_an_encoding_not_asked_for_is_decoded(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert read(compress(BODY), content_encoding=encoding).body == BODY


TAMPERED: dict[str, tuple[str, bytes]] = {
    "cut short": ("gzip", gzip.compress(BODY)[:-6]),
    "two members": ("gzip", gzip.compress(BODY) + gzip.compress(b" ")),
    "more behind it": ("gzip", gzip.compress(BODY) + b"\x00"),
    "another checksum": ("gzip", gzip.compress(BODY)[:-8] + bytes(8)),
    "raw deflate": ("deflate", zlib.compress(BODY)[2:-4]),
    "not compressed": ("gzip", BODY),
    "empty": ("gzip", b""),
    "another encoding": ("br", BODY),
    "an unknown name": ("x-gzip", gzip.compress(BODY)),
    "twice": ("gzip, deflate", zlib.compress(gzip.compress(BODY))),
    "a bomb": ("gzip", gzip.compress(b" " * (attempt.MAX_BODY + 1))),
}


@in_turn(("encoding", "body"), TAMPERED.values())
def test_a_body_that_is_not_in_the_encoding_it_claims_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(attempt.UnreadableResponseError) as caught:
        read(body, status=502, content_encoding=encoding)
    assert caught.value.status == 502


def test_a_response_that_breaks_off_keeps_what_came() -> None:
    reader = attempt.ResponseReader(attempt.Progress())
    reader.start(httpx.Response(200))
    reader.feed(b'{"data": {"transactionId": "t-1"')
    failure = reader.failure(httpx.ReadError("reset"), PAYOUTS)
    assert isinstance(failure, attempt.NoReplyError)
    assert (failure.status, failure.partial) == (200, b'{"data": {"transactionId": "t-1"')
    assert str(failure) == "ReadError: reset"


def caused(error: Exception, *causes: Exception) -> Exception:
    """Chain an error to causes, as libraries do that translate errors."""
    link = error
    for cause in causes:
        link.__cause__ = cause
        link = cause
    return error


REFUSED = ConnectionRefusedError(111, "refused")

NOT_SENT = {
    "httpcore could not connect": httpcore.ConnectError("refused"),
    "httpcore could not connect in time": httpcore.ConnectTimeout(),
    "httpcore found no free connection": httpcore.PoolTimeout(),
    "httpcore knows no such scheme": httpcore.UnsupportedProtocol("ftp"),
    "httpx said so by itself": httpx.ConnectError("no route"),
    "httpx said so of this request": httpx.ConnectError("no route", request=httpx.Request("POST", PAYOUTS)),
    "httpx said so for httpcore": caused(httpx.ConnectTimeout("late"), httpcore.ConnectTimeout()),
    "the system said so": caused(httpx.ConnectError("no"), RuntimeError("a library's"), REFUSED),
    "the resolver said so": caused(httpx.ConnectError("no"), RuntimeError("a library's"), socket.gaierror(-2)),
}
MAYBE_SENT = {
    "httpcore could not read": httpcore.ReadError("reset"),
    "httpcore could not write": httpcore.WriteError("reset"),
    "httpx could not read": httpx.ReadTimeout("late"),
    "it is of another request": httpx.ConnectError("no route", request=httpx.Request("POST", "https://audit.example")),
    "a transport translates a hang-up": caused(httpx.ConnectTimeout("disconnected"), ConnectionResetError()),
    "a transport translates its own error": caused(httpx.ConnectError("?"), RuntimeError("a library's")),
    "the system's own error": REFUSED,
    "a broken TLS record": ssl.SSLError("bad record"),
    "a stream that was used up": httpx.StreamConsumed(),
}


@in_turn("error", NOT_SENT.values())
def test_an_error_that_proves_that_nothing_was_sent(error: Exception) -> None:
    assert isinstance(attempt.ResponseReader(attempt.Progress()).failure(error, PAYOUTS), attempt.NotSentError)
    sending = attempt.Progress()
    sending.trace("http11.send_request_headers.started", {})
    assert isinstance(attempt.ResponseReader(sending).failure(error, PAYOUTS), attempt.NoReplyError)


@in_turn("error", MAYBE_SENT.values())
def test_an_error_that_proves_nothing(error: Exception) -> None:
    assert isinstance(attempt.ResponseReader(attempt.Progress()).failure(error, PAYOUTS), attempt.NoReplyError)
    connecting = attempt.Progress()
    connecting.trace("connection.connect_tcp.started", {})
    assert isinstance(attempt.ResponseReader(connecting).failure(error, PAYOUTS), attempt.NotSentError)


def test_over_our_own_connections_a_head_without_its_body_was_not_sent() -> None:
    own, other = attempt.Progress(), attempt.Progress()
    own.knows_body = True
    for progress in (own, other):
        progress.trace("connection.connect_tcp.started", {})
        progress.trace("http11.send_request_headers.started", {})
        progress.trace("http11.send_request_body.started", {})
    assert (own.is_unsent, other.is_unsent) == (True, False)
    assert isinstance(attempt.ResponseReader(own).timed_out(), attempt.NotSentError)
    own.sending_body = True
    assert not own.is_unsent
    assert isinstance(attempt.ResponseReader(own).timed_out(), attempt.NoReplyError)


def test_a_transport_that_connects_elsewhere_after_sending_has_sent() -> None:
    progress = attempt.Progress()
    progress.trace("http2.send_request_headers.started", {})
    progress.trace("connection.connect_tcp.started", {})
    assert (progress.connecting, progress.sending) == (False, True)


def test_to_ask_a_proxy_for_a_tunnel_is_to_connect() -> None:
    progress = attempt.Progress()
    progress.trace("connection.connect_tcp.started", {})
    progress.trace("http11.send_request_headers.started", {"request": httpcore.Request("CONNECT", "http://proxy")})
    assert progress.is_unsent


URL = "https://api.example:8443/v1/transactions/a%2Fb%20c?q=x%26y&limit=1"
HEADERS = attempt.common_headers("https://api.example:8443/v1", {"Accept": "application/json"})


@in_turn("body", [None, b"", b'{"amount": 1}'])
def test_a_request_is_what_httpx_would_build(body: bytes | None) -> None:
    built = attempt.build_request("POST", URL, HEADERS, body, {"timeout": {"read": 1.0}})
    plain = httpx.Request("POST", URL, headers=HEADERS)
    assert (built.method, built.url, built.url.raw_path) == (plain.method, plain.url, plain.url.raw_path)
    assert (built.extensions, built.content) == ({"timeout": {"read": 1.0}}, body or b"")


def test_a_body_and_nothing_else_is_announced_with_its_type_and_length() -> None:
    headers = attempt.build_request("POST", URL, HEADERS, b'{"amount": 1}', {}).headers
    announced = [headers[name] for name in ("host", "content-type", "content-length")]
    assert announced == ["api.example:8443", "application/json", "13"]
    assert "content-length" not in HEADERS
    assert attempt.build_request("GET", URL, HEADERS, None, {}).headers == HEADERS


def test_a_url_that_is_too_long_was_not_sent() -> None:
    with pytest.raises(attempt.NotSentError) as caught:
        attempt.build_request("GET", "https://api.example/v1/" + "x" * 70_000, HEADERS, None, {})
    assert isinstance(caught.value.__cause__, httpx.InvalidURL)
