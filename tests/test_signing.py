"""A signed callback URL stays valid behind proxies and verifies as its reference. Every other URL is forged."""

import hmac
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_turn import in_turn
from momopay import CallbackSigner, ConfigurationError, ForgedCallbackError, RequestValidationError
from momopay.urls import check_callback_url

SECRET = "correct horse battery staple"
OTHER = b"0123456789abcdef"
URL = "https://shop.example/momo"
REFERENCES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
QUERIES = st.sampled_from(["", "?", "?a=1", "?a=1&", "?next=/x?y=z", "?a=%26&b", "?token=1&x_momo=2", "?A=X"])


@pytest.fixture
def signer() -> CallbackSigner:
    return CallbackSigner(SECRET)


def forged(signer: CallbackSigner, url: Any) -> None:
    with pytest.raises(ForgedCallbackError) as caught:
        signer.verify(url)
    assert caught.value.may_have_executed is False


@given(REFERENCES, QUERIES)
def test_any_reference_comes_back_from_any_url(reference: str, query: str) -> None:
    signer = CallbackSigner(SECRET)
    url = signer.url(URL + query, reference=reference)
    assert check_callback_url(url, on_loopback=False) == url
    assert url.startswith(URL + query)
    assert url.count("&&") == url.count("?&") == 0
    assert parse_qsl(urlsplit(url).query)[-1][0] == "momo_token"
    path_and_query = url.removeprefix("https://shop.example")
    for form in (url, path_and_query, path_and_query.partition("?")[2]):
        assert signer.verify(form) == reference


PROXIES: dict[str, Callable[[str], str]] = {
    "host": lambda url: url.replace("https://shop.example", "http://10.0.0.7:8000"),
    "path": lambda url: url.replace("/momo?", "/internal/prefix/momo/?"),
    "before": lambda url: url.replace("?", "?added-by-a-proxy=1&"),
    "after": lambda url: url + "&added=1",
    "longest": lambda url: f"{url}&a=".ljust(16 * 1024, "x"),
    "order": lambda url: "&".join(reversed(url.partition("?")[2].split("&"))),
}


@in_turn("change", PROXIES.values())
def test_a_proxy_may_change_all_but_the_token(signer: CallbackSigner, change: Callable[[str], str]) -> None:
    assert signer.verify(change(signer.url(URL + "?a=1", reference="INV-42"))) == "INV-42"


def token(url: str) -> str:
    return url.partition("momo_token=")[2]


GENUINE = CallbackSigner(SECRET).url(URL, reference="INV-42")
MESSAGE, MAC = token(GENUINE).split(".")
OTHERS = token(CallbackSigner(SECRET).url(URL, reference="INV-43"))


@in_turn(
    "url",
    [
        *("", URL, URL + "?momo_token=.", URL + f"?momo_token={MESSAGE}", URL + f"?momo_token={MESSAGE}.{MAC}."),
        *(URL + f"?momo_token={MESSAGE}.{MAC.upper()}", URL + f"?momo_token={MESSAGE}%2E{MAC}"),
        URL + f"?momo_token={MESSAGE}.{MAC}#",
        URL + f"?momo_token={MESSAGE}.{OTHERS.partition('.')[2]}",
        *(URL + f"?MOMO_TOKEN={MESSAGE}.{MAC}", URL + f"?x_momo_token={MESSAGE}.{MAC}"),
        URL + f"?Xmomo_token={MESSAGE}.{MAC}",
        *(URL + f"?momo%5Ftoken={MESSAGE}.{MAC}", f"{GENUINE}&momo_token={MESSAGE}.{MAC}"),
        f"{GENUINE}&momo_token={OTHERS}",
        f"{GENUINE}&a=é",
        GENUINE.replace("a", "а"),  # noqa: RUF001  a Cyrillic letter is the test
        *(f"{GENUINE}&a=".ljust(16 * 1024 + 1, "x"), GENUINE.encode()),
        token(CallbackSigner(OTHER).url(URL, reference="INV-42")),
        "momo_token=" + token(CallbackSigner(OTHER).url(URL, reference="INV-42")),
        "momo_token=" + MESSAGE + "." + hmac.digest(SECRET.encode(), MESSAGE.encode(), "sha256").hex(),
        "momo_token=" + MESSAGE + "." + hmac.digest(SECRET.encode(), b"INV-42", "sha256").hex(),
    ],
)
def test_anything_but_the_exact_token_is_forged(signer: CallbackSigner, url: Any) -> None:
    assert signer.verify(GENUINE) == "INV-42"
    forged(signer, url)


@given(st.one_of(st.text(), st.text("momo_token=.&?#0123456789abcdef"), st.binary()))
def test_noise_is_forged(noise: Any) -> None:
    forged(CallbackSigner(SECRET), noise)


@given(st.integers(0, len(GENUINE) - 1), st.characters())
def test_no_single_change_makes_another_reference(place: int, character: str) -> None:
    changed = GENUINE[:place] + character + GENUINE[place + 1 :]
    try:
        assert CallbackSigner(SECRET).verify(changed) == "INV-42"
    except ForgedCallbackError:
        return
    assert token(changed).partition("&")[0] == f"{MESSAGE}.{MAC}"


def test_secrets_rotate() -> None:
    old = CallbackSigner(SECRET)
    both = CallbackSigner([OTHER, SECRET])
    new = CallbackSigner(OTHER)
    by_old, by_both = old.url(URL, reference="A"), both.url(URL, reference="B")
    assert both.verify(by_old) == "A"
    assert both.verify(by_both) == "B"
    assert new.verify(by_both) == "B"
    forged(new, by_old)
    forged(old, by_both)


@given(st.binary(min_size=16, max_size=200), REFERENCES)
def test_the_token_is_the_hmac_of_the_standard_library(secret: bytes, reference: str) -> None:
    message_part, _, mac = token(CallbackSigner(secret).url(URL, reference=reference)).partition(".")
    message = b"momopay callback URL, version 1\0" + reference.encode().hex().encode()
    assert mac == hmac.digest(secret, message, "sha256").hex()
    assert bytes.fromhex(message_part).decode() == reference


def test_a_status_url_opens_the_status_and_no_callback_and_the_other_way_round() -> None:
    signer = CallbackSigner([OTHER, SECRET])
    status = signer.status_url("/status?a=1", reference="INV-42")
    assert status.startswith("/status?a=1&momo_token=")
    assert signer.verify_status(status) == CallbackSigner(OTHER).verify_status(status) == "INV-42"
    forged(signer, status)
    for url in (GENUINE, CallbackSigner(b"another" * 3).status_url("/status", reference="INV-42")):
        with pytest.raises(ForgedCallbackError):
            signer.verify_status(url)
    senseless: list[Any] = ["/status#top", "", None, status]
    for url in senseless:
        with pytest.raises(RequestValidationError) as caught:
            signer.status_url(url, reference="")
        assert set(caught.value.fields) == {"url", "reference"}


def test_text_and_bytes_are_one_secret_and_16_bytes_are_enough() -> None:
    assert CallbackSigner(SECRET.encode()).verify(GENUINE) == "INV-42"
    CallbackSigner(["x" * 16, "é" * 8])
    assert CallbackSigner((SECRET,)).url(URL, reference="INV-42") == GENUINE


@in_turn(
    "secrets",
    [
        *("", b"", [], (), None, 7, {SECRET: 1}, iter([SECRET])),
        *([SECRET, ""], [SECRET, None], [b"x" * 16, bytearray(b"x" * 16)], "\ud800" * 16, bytearray(99)),
    ],
)
def test_senseless_secrets_are_refused_and_not_shown(secrets: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CallbackSigner(secrets)
    assert SECRET not in str(caught.value)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in shown.stack if "/src/momopay/" in Path(frame.filename).as_posix()]
    assert ours
    assert all("'secrets'" not in str(frame.locals) and SECRET not in str(frame.locals) for frame in ours)
    assert caught.value.__context__ is None


@in_turn("secrets", ["x" * 15, b"x" * 15, [SECRET, "short"], "é" * 7])
def test_a_secret_that_can_be_guessed_is_refused(secrets: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"16 bytes.*token_hex") as caught:
        CallbackSigner(secrets)
    assert "short" not in str(caught.value)


@in_turn(
    ("url", "reference", "at_fault"),
    [
        *(("", "A", "url"), ("shop.example/momo", "A", "url"), ("https://shop.example/a b", "A", "url")),
        *(("https://shop.example/é", "A", "url"), ("https://shop.example/#top", "A", "url")),
        *((None, "A", "url"), (GENUINE, "A", "url"), (URL, "", "reference"), (URL, None, "reference")),
        *((URL, "\ud800", "reference"), (URL, "x" * 1025, "reference")),
        (URL, "é" * 513, "reference"),
    ],
)
def test_what_cannot_be_signed_is_refused(signer: CallbackSigner, url: Any, reference: Any, at_fault: str) -> None:
    with pytest.raises(RequestValidationError) as caught:
        signer.url(url, reference=reference)
    assert set(caught.value.fields) == {at_fault}
    assert caught.value.fields[at_fault].startswith(("must", "has"))
    assert signer.verify(signer.url("http://127.0.0.1:8000/momo", reference="A")) == "A"
    assert signer.verify(signer.url(URL, reference="x" * 1024)) == "x" * 1024


def test_secrets_are_neither_shown_nor_pickled() -> None:
    signer = CallbackSigner([SECRET, OTHER])
    assert repr(signer) == str(signer) == "CallbackSigner(<secrets: 2>)"
    with pytest.raises(TypeError):
        pickle.dumps(signer)
