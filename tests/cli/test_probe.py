"""`momopay probe`: what it shows, what it writes, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.kit import PHONE, Shell
from momopay import Client, RateBudget
from momopay._transport.attempt import RawResponse
from momopay.sandbox import Account, Fault, Sandbox
from patience import until


@pytest.fixture(autouse=True)
def _wide_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several probes in a minute, as no terminal sends them."""

    class Wide(RateBudget):
        def __init__(self) -> None:
            super().__init__(10_000)

    monkeypatch.setattr("momopay._core.session.RateBudget", Wide)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "service.toml"


def test_people_see_a_table(momopay: Shell, client: Client) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    done = momopay("probe")
    assert done.code == 0
    for line in ("naming camelCase", "transaction_not_found_status 404", "time_formats time, date"):
        assert line in done.words
    assert "Unknown (needs --write): created_status, delete_answer," in done.words
    assert "Unknown (cannot be found from outside): late_pin," in done.words


def test_a_profile_is_written_and_compared(
    momopay: Shell, client: Client, account: Account, profile: Path, key: str
) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    assert momopay("probe", "--out", str(profile)).code == 0
    text = profile.read_text()
    assert tomllib.loads(text)["switches"]["list_phone"] == "whole"
    assert key not in text
    assert "712345678" not in text
    same = momopay("probe", "--against", str(profile))
    assert (same.code, same.out) == (0, "Nothing has changed.\n")
    account.switches.list_phone = "masked"
    account.switches.transaction_not_found_status = 400
    changed = momopay("probe", "--against", str(profile))
    assert changed.code == 1
    assert "list_phone whole masked" in changed.words
    assert "transaction_not_found_status 404 400" in changed.words
    document = momopay("probe", "--against", str(profile), "--json")
    assert document.code == 1
    assert document.json["changes"][1] == {"name": "list_phone", "before": "whole", "now": "masked"}


@pytest.mark.usefixtures("virtual")
def test_an_answer_that_the_sandbox_has_no_value_for_is_a_change(
    momopay: Shell, sandbox: Sandbox, profile: Path
) -> None:
    momopay("probe", "--out", str(profile))
    sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=100)
    changed = momopay("probe", "--against", str(profile))
    assert changed.code == 1
    assert "transaction_not_found_status 404 500" in changed.words
    again = momopay("probe", "--out", str(profile), "--against", str(profile))
    assert again.code == 1
    assert momopay("probe", "--against", str(profile)).code == 0
    sandbox.clear_planned()
    assert "transaction_not_found_status 500 404" in momopay("probe", "--against", str(profile)).words


@pytest.mark.usefixtures("virtual")
def test_an_unclear_prompt_loses_nothing(momopay: Shell, sandbox: Sandbox, profile: Path) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.html_502)
    spend = ("--spend", "1", "--phone", PHONE, "--yes")
    done = momopay("probe", "--write", *spend, "--out", str(profile))
    assert (done.code, "delete_answer envelope" in done.words) == (4, True)
    found = tomllib.loads(profile.read_text())
    assert (found["switches"]["delete_answer"], found["switches"]["strict_fields"]) == ("envelope", "unknown")


def test_what_is_not_known_any_more_is_no_change(
    momopay: Shell, sandbox: Sandbox, profile: Path, client: Client
) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    momopay("probe", "--out", str(profile))
    sandbox.reset()
    done = momopay("probe", "--against", str(profile), "--json")
    assert (done.code, done.json["changes"]) == (0, [])
    assert {"naming", "list_phone", "time_formats"} <= set(done.json["not_compared"])
    assert "Not compared, because this run could not tell: naming," in momopay("probe", "--against", str(profile)).words


def test_json(momopay: Shell) -> None:
    found = momopay("probe", "--json").json
    assert found["switches"]["transaction_not_found_status"] == 404
    assert found["facts"]["read_statuses"] == ["200"]
    evidence = found["evidence"]["transaction_not_found_status"]
    assert "404 TRANSACTION_NOT_FOUND" in evidence["sentence"]
    assert len(evidence["request_ids"][0]) == 36


def test_a_wrong_setup_ends_with_its_exit_code(momopay: Shell, profile: Path, tmp_path: Path) -> None:
    assert momopay("probe", MOMOPAY_API_KEY="pk_test_").code == 3
    assert momopay("probe", "--against", str(profile)).code == 2
    for folder in ("nowhere", "x" * 300):
        assert momopay("probe", "--out", str(tmp_path / folder / "service.toml")).code == 2
    assert momopay("probe", MOMOPAY_API_KEY="").code == 3


def test_a_comparison_with_nothing_is_no_success(
    momopay: Shell, sandbox: Sandbox, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(*_: object) -> None:
        pass

    monkeypatch.setattr("momopay._transport.sync_backend.SyncBackend.sleep", sleep)
    momopay("probe", "--out", str(profile))
    with Sandbox() as other:
        address = other.base_url
    gone = momopay("probe", "--against", str(profile), MOMOPAY_BASE_URL=address)
    assert gone.code == 6

    def nothing(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("momopay.probe.Profile.compared", nothing)
    empty = momopay("probe", "--against", str(profile))
    assert (empty.code, "nothing that could be compared" in empty.err) == (6, True)


def test_pages_of_a_proxy_replace_no_profile(
    momopay: Shell, sandbox: Sandbox, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    momopay("probe", "--out", str(profile))
    before = profile.read_bytes()

    async def send(*_: object, **__: object) -> RawResponse:
        return RawResponse(200, httpx.Headers(), b"<html>Please log in</html>")

    monkeypatch.setattr("momopay._transport.sync_backend.SyncBackend.send", send)
    page = momopay("probe", "--write", "--out", str(profile))
    assert (page.code, "no answer has the service's envelope" in page.err) == (3, True)
    assert profile.read_bytes() == before
    assert {each.method for each in sandbox.requests} == {"GET"}


def test_an_out_that_cannot_be_written_loses_nothing(
    momopay: Shell, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = momopay("probe", "--out", str(tmp_path))
    assert (folder.code, "cannot be written" in folder.err) == (2, True)
    assert sandbox.requests == []

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    late = momopay("probe", "--out", str(tmp_path / "service.toml"))
    assert (late.code, "No space left on device" in late.err) == (3, True)
    assert "404 TRANSACTION_NOT_FOUND" in late.out


@pytest.fixture
def virtual(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pauses move the sandbox's clock, and the settings folder is this test's."""

    async def sleep(_backend: object, seconds: float) -> None:
        sandbox.advance(seconds)

    monkeypatch.setattr("momopay._transport.sync_backend.SyncBackend.sleep", sleep)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


def sent(sandbox: Sandbox, path: str) -> int:
    return [request.path for request in sandbox.requests if request.method == "POST"].count(path)


@pytest.mark.usefixtures("virtual")
def test_all_of_it(momopay: Shell, account: Account, sandbox: Sandbox, profile: Path, key: str) -> None:
    account.rate_limit = 60
    done = momopay(
        "probe", "--write", "--rate", "--spend", "1", "--phone", "0712349932", "--yes", "--out", str(profile)
    )
    assert done.code == 0, done.err
    document = tomllib.loads(profile.read_text())
    assert document["probe"]["asked"] == ["rate", "reads", "spend", "write"]
    known = [name for name, value in document["switches"].items() if value != "unknown"]
    assert len(known) == 14
    for secret in (key, "712349932"):
        assert secret not in profile.read_text() + done.out + done.err
    assert "Creating the channel 'momopay probe" in done.err
    assert "to 2547*****932, reference PROBE" in done.err
    assert sent(sandbox, "/payments/stk") == 1
    assert [channel.name for channel in account.live_channels()] == ["Sandbox Paybill"]


@pytest.mark.usefixtures("virtual")
def test_a_prompt_is_asked_about(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    spend = ("probe", "--spend", "1", "--phone", PHONE, "--journal", str(tmp_path / "probe.db"))
    assert momopay(*spend, piped="n\n").code == 1
    assert momopay(*spend, piped="").code == 2
    assert sandbox.requests == []
    assert momopay(*spend, piped="y\n").code == 0
    assert sent(sandbox, "/payments/stk") == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--spend", "1"),
        ("--phone", PHONE),
        ("--spend", "3", "--phone", PHONE),
        ("--spend", "0.5", "--phone", PHONE),
        ("--spend", "1", "--phone", "12"),
    ],
)
def test_senseless_options_send_nothing(momopay: Shell, sandbox: Sandbox, options: tuple[str, ...]) -> None:
    assert momopay("probe", *options, "--yes").code == 2
    assert sandbox.requests == []


def test_a_live_key_is_asked_about(momopay: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOMOPAY_TEST_RUN", raising=False)
    live = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://127.0.0.2.example/v1"}
    refused = momopay("probe", "--write", "--rate", **live)
    assert refused.code == 1
    assert "This is a live key: the probe will create and delete a channel and use up a minute's" in refused.err
    assert momopay.at_a_terminal("probe", "--write", typed="n\n", **live).code == 1
    spend = ("probe", "--spend", "1", "--phone", PHONE, "--journal", str(tmp_path / "probe.db"))
    assert momopay(*spend, "--yes", piped="", **live).code == 2
    assert momopay(*spend, "--confirm-live", "2", **live).code == 2
    assert not (tmp_path / "probe.db").exists()


@pytest.fixture
def stopped(momopay: Shell, sandbox: Sandbox) -> Iterator[subprocess.Popen[str]]:
    """A probe in a process of its own that has created its channel, and waits for an answer."""
    path = "/payment-wallet/channels"
    # The first PATCH is of a channel that does not exist.
    sandbox.fail_next("PATCH", path + "/{id}", Fault.error_before_commit)
    sandbox.fail_next("PATCH", path + "/{id}", Fault.hang_after_commit)
    process = momopay.start("probe", "--write", "--json")
    until(lambda: sum(request.method == "PATCH" for request in sandbox.requests) > 1)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_channel(
    stopped: subprocess.Popen[str], account: Account, number: signal.Signals, code: int
) -> None:
    assert len(list(account.live_channels())) == 2
    stopped.send_signal(number)
    _, errors = stopped.communicate(timeout=60)
    assert stopped.returncode == code, errors
    assert [channel.name for channel in account.live_channels()] == ["Sandbox Paybill"]


def test_what_a_killed_probe_left_is_named_and_found(
    stopped: subprocess.Popen[str], account: Account, momopay: Shell
) -> None:
    stopped.kill()
    _, errors = stopped.communicate(timeout=60)
    (left,) = (channel.name for channel in account.live_channels() if channel.name.startswith("momopay"))
    assert f"Creating the channel '{left}'" in " ".join(errors.split())
    done = momopay("probe", "--write")
    assert "needs --write" not in done.words
    assert (done.code, f"Deleting the channel '{left}'" in done.err) == (0, True)
    assert [channel.name for channel in account.live_channels()] == ["Sandbox Paybill"]
