"""Neither the key nor a whole phone shows in logs, reprs, tracebacks with locals, pickles or chained errors."""

import base64
import logging
import pickle
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
import wire
from bodies import envelope, refusal, transaction
from drivers import Driver
from in_turn import in_turn
from models.kit import BALANCE, PAGE
from momopay._redaction import clear_frames, key_mode, mask_phone, redact

KEY = "mno_test_canary_8f3a"
BASIC = base64.b64encode(f"{KEY}:".encode()).decode()
PHONE = "254712345678"
LOCAL = "0712345678"
BASE = "https://api.example/v1"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def shown(error: BaseException) -> str:
    """Everything that a log, a crash report or a debugger would show of an error."""
    text = list[str]()
    for link in chain(error):
        report = traceback.TracebackException.from_exception(link, capture_locals=True)
        places = [(Path(frame.filename).as_posix(), frame) for frame in report.stack]
        ours = [frame for place, frame in places if "/src/momopay/" in place or "site-packages" in place]
        text += [f"{frame.name} {frame.locals}" for frame in ours]
        text += [str(link), repr(link), *report.format_exception_only()]
    return "\n".join(text)


def refusing(status: int, code: str) -> Callable[[httpx.Request], httpx.Response]:
    def handler(_request: httpx.Request) -> httpx.Response:
        answer = refusal(code)
        answer["error"]["message"] = f"{KEY}, Basic {BASIC}: cannot prompt {PHONE} or +{PHONE} or {LOCAL}"
        return httpx.Response(status, json=answer)

    return handler


def failing(error: Exception) -> Callable[..., httpx.Response]:
    def handler(*_arguments: object, **_options: object) -> httpx.Response:
        raise error

    return handler


HANDLERS: dict[str, Callable[[httpx.Request], httpx.Response]] = {
    "refused": refusing(400, "INVALID_PHONE"),
    "unknown code": refusing(400, "SOMETHING_NEW"),
    "server": refusing(500, "OOPS"),
    "html": lambda _request: httpx.Response(502, text=f"<html>{PHONE}"),
    "not an envelope": lambda _request: httpx.Response(200, json={"success": True, "data": {"phone": PHONE}}),
    "no reply": failing(httpx.ReadTimeout(f"reading {PHONE}, {KEY}, Basic {BASIC}")),
    "not sent": failing(httpx.ConnectError("refused")),
    "a bug in the transport": failing(RuntimeError("oops")),
}

CALLS: dict[str, Callable[[Any], Any]] = {
    "stk": lambda client: client.stk.initiate(amount=1, phone=LOCAL, account_reference=PHONE),
    "payout": lambda client: client.payouts.initiate(amount=10, phone=PHONE, reference=PHONE),
    "top-up": lambda client: client.wallet.top_up(amount=1, phone="+" + PHONE),
    "search": lambda client: client.transactions.list(q=PHONE),
    "refused here": lambda client: client.stk.initiate(amount=1, phone=PHONE + "9", account_reference=PHONE + "99"),
}


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize(
    ("answer", "call"),
    [*((answer, "payout") for answer in HANDLERS), *(("refused", call) for call in CALLS if call != "payout")],
)
def test_no_error_shows_the_key_or_a_phone(
    answer: str, call: str, drive: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    driver = drive(api_key=KEY, transport=httpx.MockTransport(HANDLERS[answer]), max_attempts=2, deadline=0.3)
    with pytest.raises((momopay.MomoPayError, RuntimeError)) as caught:  # a transport's bug comes out unchanged
        driver(CALLS[call])
    visible = shown(caught.value) + caplog.text
    for secret in (KEY, BASIC, PHONE, LOCAL):
        assert secret not in visible
    pickled = pickle.dumps(caught.value)
    assert KEY.encode() not in pickled
    assert BASIC.encode() not in pickled
    if not isinstance(caught.value, momopay.OutcomeUnknownError):
        assert PHONE.encode() not in pickled


def test_a_write_that_fails_shows_neither(drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("sync_backend.SyncSocket", "async_backend.AsyncSocket"):
        monkeypatch.setattr(f"momopay._transport.{kind}.write", failing(OSError("reset")))
    with wire.serve(wire.succeeds()) as server, pytest.raises(momopay.APIConnectionError) as caught:
        drive(api_key=KEY, base_url=server.base_url, max_attempts=1)(CALLS["payout"])
    for secret in (KEY, BASIC, PHONE):
        assert secret not in shown(caught.value)


def test_a_wrong_argument_name_leaves_nothing_to_see(drive: Callable[..., Driver]) -> None:
    observers: list[Callable[[object], None] | None] = [None, lambda _event: None]
    for on_event in observers:
        driver = drive(api_key=KEY, transport=httpx.MockTransport(HANDLERS["server"]), on_event=on_event)
        with pytest.raises(TypeError) as caught:
            driver(lambda client: client.stk.initiate(amount=1, phone=LOCAL, refernce="A"))
        assert LOCAL not in shown(caught.value)


def test_an_error_that_a_payroll_returns_leaves_nothing_to_see(drive: Callable[..., Driver], tmp_path: Path) -> None:
    driver = drive(api_key=KEY, transport=httpx.MockTransport(HANDLERS["refused"]))
    payouts = [{"reference": "Q", "amount": 0, "phone": LOCAL}, {"reference": "P", "amount": 10, "phone": LOCAL}]
    with momopay.Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        outcomes = driver.collect(lambda client: client.payouts.pay_all(payouts, journal=journal))
    assert len(outcomes) == len(payouts)
    for outcome in outcomes:
        assert outcome.error is not None
        for secret in (KEY, BASIC, PHONE, LOCAL):
            assert secret not in shown(outcome.error)


def test_without_clearing_a_phone_would_show(drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(_error: BaseException) -> None: ...

    monkeypatch.setattr("momopay._core.operation.clear_frames", keep)
    driver = drive(api_key=KEY, transport=httpx.MockTransport(HANDLERS["no reply"]))
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        driver(CALLS["payout"])
    assert PHONE in shown(caught.value)


def test_a_callers_own_frames_keep_their_locals(drive: Callable[..., Driver]) -> None:
    def ended(transaction: momopay.Transaction) -> bool:
        found = transaction.status
        raise LookupError(found)

    answer = httpx.Response(200, json=envelope(transaction("t")))
    driver = drive(api_key=KEY, transport=httpx.MockTransport(lambda _request: answer))
    at_once = momopay.PollSchedule(first=0.0, every=1.0, limit=5.0)
    with pytest.raises(LookupError) as caught:
        driver(lambda client: client.transactions.wait("t", until=ended, schedule=at_once))
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    (frame,) = [each for each in report.stack if each.name == "ended"]
    assert frame.locals is not None
    assert "PENDING" in frame.locals["found"]


MAKERS: list[Callable[[], object]] = [
    *(partial(kind, KEY, base_url="http://api.example/v1") for kind in (momopay.Client, momopay.AsyncClient)),
    *(partial(kind, KEY, base_url=BASE, timeout=0) for kind in (momopay.Client, momopay.AsyncClient)),
    partial(momopay.Journal, f"mysql://user:{KEY}@localhost/d"),
    partial(momopay.RedisRateBudget, f"redis://user:{KEY}@localhost", requests=0),
]


@in_turn("make", MAKERS)
def test_what_holds_a_secret_leaves_nothing_to_see_when_it_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(momopay.ConfigurationError) as caught:
        make()
    assert KEY not in shown(caught.value)


def test_a_journal_that_cannot_be_written_leaves_nothing_to_see(drive: Callable[..., Driver], tmp_path: Path) -> None:
    with momopay.Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        journal.get("r")
        trigger = "CREATE TRIGGER full BEFORE INSERT ON momopay_payments BEGIN SELECT RAISE(ABORT, 'no'); END"
        with closing(sqlite3.connect(tmp_path / "payouts.db")) as database:
            database.execute(trigger)
        answer = httpx.Response(200, json=envelope(BALANCE.camel))
        driver = drive(api_key=KEY, transport=httpx.MockTransport(lambda _request: answer))
        with pytest.raises(momopay.JournalError) as caught:
            driver(lambda client: client.payouts.pay_once(journal=journal, reference=PHONE, amount=10, phone=LOCAL))
    assert PHONE not in shown(caught.value)


def test_nothing_is_logged_below_a_warning_unless_asked(
    drive: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = httpx.Response(200, json=envelope({**PAGE, "nextCursor": None}))
    driver = drive(transport=httpx.MockTransport(lambda _request: answer))
    driver(lambda client: client.transactions.list(q=PHONE))
    assert caplog.records == []


def test_what_an_error_was_raised_in_the_handling_of_is_cleared_too() -> None:
    error, handled, own = momopay.ProtocolError("a bug"), httpx.ReadError(f"reading {PHONE}"), ValueError(PHONE)
    error.__context__, error.__cause__ = handled, own
    clear_frames(error)
    assert (PHONE in str(handled), str(own)) == (False, PHONE)  # the user's own errors stay as they are


@in_turn(("phone", "shown"), [("254712345678", "2547*****678"), ("254112345678", "2541*****678")])
def test_mask_shows_four_and_three(phone: str, shown: str) -> None:
    assert mask_phone(phone) == shown


@given(st.text())
def test_mask_never_shows_more_than_it_may(text: str) -> None:
    masked = mask_phone(text)
    assert isinstance(masked, str)
    if len(text) >= 9:
        assert text not in masked


@given(
    st.from_regex(r"[71][0-9]{8}", fullmatch=True),
    st.sampled_from(["0{}", "254{}", "+254{}"]),
    st.sampled_from(
        [("", ""), ("call ", "."), ("'", "'"), ("phone=", "&x"), ("\n", "\n"), ("wage", ""), ("%2b", ""), ("", "and")]
    ),
)
def test_every_phone_in_a_text_is_masked(subscriber: str, form: str, around: tuple[str, str]) -> None:
    before, after = around
    phone = form.format(subscriber)
    shown = redact(f"{before}{phone}{after}")
    assert subscriber not in shown
    assert shown.startswith(before)
    assert shown.endswith(after)
    assert redact(shown) == shown


@in_turn(
    "text",
    [
        *("call 0712 345 678.", "+254 (712) 345-678", "0 712-345-678", "to 254-712 345 678"),
        *("/transactions/0712%20345%20678", "/%2B254%20%28712%29%20345-678", "/(0712)%20345%20678"),
    ],
)
def test_a_phone_with_separators_is_masked_too(text: str) -> None:
    assert "345" not in redact(text)


def basic(key: str) -> str:
    return base64.b64encode(f"{key}:".encode()).decode()


@in_turn(
    ("text", "masked"),
    [
        ("Basic cGtf/b+c= and pk_live_a/b+c=", "Basic cGtf***** and pk_live_*****"),
        ('{"key": "ab_test_-x9", "to": "A"}', '{"key": "ab_test_*****", "to": "A"}'),
        (r"{\"key\": \"Abc_live_x9\", \"to\": 1}", r"{\"key\": \"Abc_live_*****\", \"to\": 1}"),
        ("{'key': 'sk_live_x9', 'to': 1}", "{'key': 'sk_live_*****', 'to': 1}"),
        ("key=mno_test_x9&to=1, ab_live_y.", "key=mno_test_*****&to=1, ab_live_*****."),
        (
            "key%3Dab_live_x9 https://ab_test_x9:@api.example/",
            "key%3Dab_live_***** https://ab_test_*****:@api.example/",
        ),
        ("GET /transactions/ab_live_x9", "GET /transactions/ab_live_*****"),
        ("pk_test_pk_live_x9 pk_test__ab_live_x", "pk_test_***** pk_test_*****"),
        (
            f'{{"Authorization": "Basic {basic("ab_live_x9y")}"}}',
            f'{{"Authorization": "Basic {basic("ab_live_x")[:4]}*****"}}',
        ),
        (f"{basic('Wxyz_test_0')}, to=1", f"{basic('Wxyz')[:4]}*****, to=1"),
        ("https://shop.example/?a=1&momo_token=494e.0f9a&b=2", "https://shop.example/?a=1&momo_token=*****&b=2"),
    ],
)
def test_a_key_and_a_token_are_masked_to_their_end_and_no_further(text: str, masked: str) -> None:
    assert redact(text) == masked
    assert redact(masked) == masked


KEYS = st.from_regex(r"[A-Za-z]{2,6}_(live|test)_[!#$%*+./^_~=0-9A-Za-z-]{8,30}", fullmatch=True).filter(
    lambda key: key_mode(key) is not None
)
"""Whatever a client accepts."""
AROUND = [
    *("{}", "the key {}, and", '{{"key": "{}"}}', "{{'key': '{}'}}", "key={}&a=b", "\n{}\n", "<{}>", "({})"),
    *(
        "https://{}:@api.example/v1",
        "https://api.example/v1/{}",
        "http://api.example/{}/more",
        "https://a.example/x/{}/y.z",
    ),
    *("https://api.example/v1?key={}&a=b", "https://api.example/v1#{}", "HTTPS://API.EXAMPLE/a/{}/b"),
]


@given(KEYS, st.sampled_from(AROUND))
def test_every_key_that_a_client_accepts_is_hidden_whole(key: str, around: str) -> None:
    rest = key[key.index("_") + len("_live_") :]
    assert rest not in redact(around.format(key))


@in_turn(
    ("text", "masked"),
    [
        ("/srv/pk_live_4f9a8b7c6d5e4f3a/x.db", "/srv/pk_live_*****"),
        ("/srv/pk_test_550e8400-e29b-41d4-a716-446655440000.json", "/srv/pk_test_*****"),
        ("\x1b[31mpk_test_4f9a8b7c6d5e4f3a\x1b[0m", "\x1b[31mpk_test_*****\x1b[0m"),
        ("x_pk_live_4f9a8b7c6d5e4f3a, 1pk_live_4f9a8b7c6d5e4f3a", "x_pk_live_*****, 1pk_live_*****"),
        ("in test_a_live_key_and_unit_test_of_it", "in test_a_live_key_and_unit_test_of_it"),
        ("sqlite:////srv/ab_test_0123456789abcdefgh/x.db", "sqlite:////srv/ab_test_*****"),
        ("https://api.example/v1/ab_test_x/things", "https://api.example/v1/ab_test_*****"),
    ],
)
def test_a_key_in_a_path_is_hidden(text: str, masked: str) -> None:
    assert redact(text) == masked


@in_turn(
    "text",
    [
        *(
            "/srv/pk_live_4f9a8b7c6d5e/x.db",
            "/home/me/my_test_folder/a.db",
            "C:/data/shop_live_2026/a.db",
        ),
        *("pk_live_ or pk_test_: copy the key", "pk_live_... or pk_test_...", "pk_live_/pk_test_ keys"),
        "pk_live_<KEY>",
        *("sqlite:////srv/shop_test_db/payments.db", "/tmp/test_live_key0/a.db", "MOMOPAY_TEST_RUN", "a_live_x"),
        *("of_latest_x", "has a momo_token already", "Basic authentication", f"id {basic('INV-42 of today')}"),
    ],
)
def test_our_own_words_and_paths_are_left_whole(text: str) -> None:
    assert str(momopay.ConfigurationError(text)) == redact(text) == text


@in_turn(
    "text",
    [
        *("", "INV-42", "100.50", "3b241101-e2bb-4255-8caf-4136c566a962", "2025-03-01T10:15:30Z", "KES 150000"),
        *("600100", "9f1c254712345678d0a1", "0712345678000000a", "40cb0712-3456-4789-848b-1f2a3b4c5d6e"),
    ],
)
def test_what_is_no_phone_is_left_as_it_was(text: str) -> None:
    assert redact(text) == text
