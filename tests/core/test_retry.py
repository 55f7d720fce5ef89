"""Which rule allows what, and times in headers."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_turn import in_turn
from momopay._core.response import http_date, remaining_requests, retry_after
from momopay._core.retry import AT_MOST_ONCE, MAY_HAVE_EXECUTED, FailureKind, load_tenacity


def test_a_payment_is_repeated_only_where_it_surely_did_not_execute() -> None:
    assert not AT_MOST_ONCE.retries_on & MAY_HAVE_EXECUTED
    assert AT_MOST_ONCE.retries_on == {FailureKind.NOT_SENT, FailureKind.RATE_LIMITED}


@in_turn(
    ("text", "seconds"),
    [
        *(("0", 0.0), ("17", 17.0), (" 17 ", 17.0), ("-1", None), ("1.5", None), ("soon", None), ("", None)),
        *(("٣", None), ("9" * 400, 1e9), ("Wed, 99 Nov 2026 07:28:00 GMT", None)),
        *(("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 2015 07:28:00", 0.0)),
    ],
)
def test_retry_after_is_digits_or_a_date_and_junk_is_ignored(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds


WORDS = (
    r'Wed, Sun 21 0 99 Oct May 9999 07:28:00 24:00:00 7:8 GMT EST Z +0000 -2400 +99999999999 (comment \ " - , ; 1e9 ٣'
)


@given(st.text() | st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join))
def test_any_header_at_all_is_a_pause_or_none(text: str) -> None:
    seconds = retry_after({"retry-after": text})
    assert seconds is None or 0 <= seconds < 1e12


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
DATE = {"date": "Sun, 22 Nov 2026 12:00:00 GMT"}
RESET = int(NOON.timestamp())


@in_turn(
    ("remaining", "reset", "date", "found"),
    [
        *(
            ("7", str(RESET + 1), DATE, (7, 1.0)),
            ("7", str(RESET + 30), DATE, (7, 30.0)),
            ("0", str(RESET + 60), DATE, (0, 60.0)),
        ),
        *(("7", str(RESET + 9999), DATE, (7, 60.0)), ("7", str(RESET), DATE, None), ("7", str(RESET - 1), DATE, None)),
        *(("7", str(RESET), {}, (7, 60.0)), ("7", "30", {"date": "soon"}, (7, 60.0)), ("7", "", DATE, None)),
        *((text, str(RESET + 30), DATE, None) for text in ("", "-1", "7.0", "NaN", "7, 8", "9" * 5000, "\u0663", " 7")),
        *(("7", text, DATE, None) for text in ("-1", "inf", f"{RESET + 30}, {RESET + 40}", "9" * 5000, "soon")),
    ],
)
def test_what_is_left_of_the_services_window(
    remaining: str, reset: str, date: dict[str, str], found: tuple[int, float] | None
) -> None:
    headers = {"x-ratelimit-remaining": remaining, "x-ratelimit-reset": reset}
    assert remaining_requests({**headers, **date}) == found
    assert [remaining_requests({name: text, **date}) for name, text in headers.items()] == [None, None]


@given(st.text(), st.text(), st.text() | st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join))
def test_any_headers_at_all_leave_some_seconds_or_say_nothing(remaining: str, reset: str, date: str) -> None:
    for given_reset in (reset, str(RESET)):
        headers = {"x-ratelimit-remaining": "1", "x-ratelimit-reset": given_reset, "date": date}
        found = remaining_requests(headers)
        assert found is None or 0 < found[1] <= 60
        assert remaining.isdigit() or remaining_requests({**headers, "x-ratelimit-remaining": remaining}) is None


@in_turn(
    ("text", "found"),
    [
        *((f"Sun, 22 Nov 2026 {time}", NOON) for time in ("12:00:00 GMT", "15:00:00 +0300", "12:00:00 -0000")),
        *((text, None) for text in ("", "30", "Sun, 22 Nov 2026 14:00 +99999999999999", f"Sun, {10**20} Nov 2026")),
    ],
)
def test_a_date_has_a_zone_and_anything_else_is_none(text: str, found: datetime | None) -> None:
    assert http_date(text) == found


INTERRUPTED = """
import signal, sys
import httpx
from momopay import Client, MomoPayError

class Ctrl_C:
    def find_spec(name, path, target=None):
        if name == "tenacity.asyncio":  # the last part of it
            sys.meta_path.remove(Ctrl_C)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Ctrl_C)
def down(request):
    print("request")
    return httpx.Response(503)

client = Client("pk_test_x", base_url="http://127.0.0.1:1/v1", transport=httpx.MockTransport(down), max_attempts=2)
for _ in range(2):
    try:
        client.wallet.balance()
    except (KeyboardInterrupt, MomoPayError) as error:
        print(type(error).__name__)
"""


def test_a_signal_during_the_first_retry_does_not_break_the_next_ones() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["request", "KeyboardInterrupt", "request", "request", "ServerError"]


def test_tenacity_is_loaded_before_the_first_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tenacity", raising=False)
    load_tenacity()
    assert "tenacity" in sys.modules
