"""`momopay probe`: what it shows, what it writes, and how it ends."""

import signal
import tomllib
from functools import partial
from pathlib import Path

import pytest

from cli.kit import PHONE, Shell, signalling
from momopay import Client, RateBudget
from momopay.sandbox import Account, Fault, Sandbox
from sandbox.kit import posts


@pytest.fixture(autouse=True)
def _wide_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several probes in a minute, as no terminal sends them, each without its questions about the list's parameters."""
    monkeypatch.setattr("momopay._core.state.RateBudget", partial(RateBudget, 10_000))
    monkeypatch.setattr("momopay.probe.reads._PARAMETERS", ())


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "service.toml"


@pytest.fixture
def virtual(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pauses move the sandbox's clock, and the settings folder is this test's."""

    async def sleep(_backend: object, seconds: float) -> None:
        sandbox.advance(seconds)

    monkeypatch.setattr("momopay._transport.sync_backend.SyncBackend.sleep", sleep)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


def test_people_see_a_table(momopay: Shell, client: Client) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    done = momopay("probe")
    assert done.code == 0
    for line in ("naming camelCase", "transaction_not_found_status 404", "read_statuses 200"):
        assert line in done.words
    assert "Unknown: cancel_ends_as, expired_reads_as," in done.words


def test_a_profile_is_written_and_compared(
    momopay: Shell, client: Client, account: Account, sandbox: Sandbox, profile: Path, key: str
) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    assert momopay("probe", "--out", str(profile)).code == 0
    text = profile.read_text()
    assert tomllib.loads(text)["switches"]["list_phone"] == "whole"
    assert key not in text
    assert "712345678" not in text
    assert momopay("probe", "--against", str(profile), "--out", str(profile)).code == 2
    same = momopay("probe", "--against", str(profile))
    assert (same.code, same.out) == (0, "Nothing has changed.\n")
    account.switches.list_phone = "masked"
    account.switches.transaction_not_found_status = 400
    changed = momopay("probe", "--against", str(profile))
    assert changed.prints(1, "list_phone whole masked", "transaction_not_found_status 404 400")
    found = momopay("probe", "--against", str(profile), "--json")
    assert (found.code, found.json["changes"][1]) == (1, {"name": "list_phone", "before": "whole", "now": "masked"})
    assert found.json["switches"]["transaction_not_found_status"] == 400
    assert found.json["facts"]["read_statuses"] == ["200"]
    evidence = found.json["evidence"]["transaction_not_found_status"]
    assert "400 TRANSACTION_NOT_FOUND" in evidence["sentence"]
    assert len(evidence["request_ids"][0]) == 36
    sandbox.reset()
    account.rate_limit = None
    unknown = momopay("probe", "--against", str(profile), "--json")  # what is no longer known is no change
    assert (unknown.code, unknown.json["changes"]) == (0, [])
    assert {"naming", "list_phone"} <= set(unknown.json["not_compared"])
    assert "Not compared, because this run could not tell: naming," in momopay("probe", "--against", str(profile)).words


def test_a_wrong_setup_ends_with_its_exit_code(momopay: Shell, sandbox: Sandbox, profile: Path, tmp_path: Path) -> None:
    assert momopay("probe", MOMOPAY_API_KEY="ab_test_revoked").code == 3
    assert momopay("probe", "--against", str(profile)).code == 2
    for wrong in (tmp_path, tmp_path / "nowhere" / "service.toml", tmp_path / ("x" * 300) / "service.toml"):
        assert momopay("probe", "--out", str(wrong)).says(2, "cannot be written")
    assert sandbox.requests[3:] == []  # those of the wrong key
    assert momopay("probe", MOMOPAY_API_KEY="").code == 3


@pytest.mark.usefixtures("virtual")
def test_nothing_to_compare(momopay: Shell, sandbox: Sandbox, profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    momopay("probe", "--out", str(profile))
    with Sandbox() as other:
        address = other.base_url
    assert momopay("probe", "--against", str(profile), MOMOPAY_BASE_URL=address).code == 6

    def nothing(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("momopay.probe.Profile.compared", nothing)
    assert momopay("probe", "--against", str(profile)).says(6, "nothing that could be compared")


def test_a_disk_that_is_full_loses_nothing(momopay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    late = momopay("probe", "--out", str(tmp_path / "service.toml"))
    assert (late.code, "No space left on device" in late.err) == (3, True)
    assert "404 TRANSACTION_NOT_FOUND" in late.out


@pytest.mark.usefixtures("virtual")
def test_all_of_it(momopay: Shell, account: Account, sandbox: Sandbox, profile: Path, key: str) -> None:
    account.rate_limit = 60
    spend = ("--spend", "1", "--phone", "0712349932", "--yes")
    done = momopay("probe", "--write", "--rate", *spend, "--out", str(profile))
    assert done.code == 0, done.err
    document = tomllib.loads(profile.read_text())
    assert document["probe"]["asked"] == ["rate", "reads", "spend", "write"]
    assert len([name for name, value in document["switches"].items() if value != "unknown"]) == 29
    for secret in (key, "712349932"):
        assert secret not in profile.read_text() + done.out + done.err
    assert "Creating the channel 'momopay probe" in done.err
    assert "to 2547*****932, reference PROBE" in done.err
    assert posts(sandbox, "/payments/stk") == 1
    assert [channel.name for channel in account.live_channels()] == ["Sandbox Paybill"]


@pytest.mark.usefixtures("virtual")
def test_a_prompt_is_asked_about(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    spend = ("probe", "--spend", "1", "--phone", PHONE, "--journal", str(tmp_path / "probe.db"))
    assert (momopay(*spend, piped="n\n").code, momopay(*spend, piped="").code) == (1, 2)
    assert (momopay(*spend, "--yes", "--out", str(tmp_path / "probe.db")).code, sandbox.requests) == (2, [])
    assert (momopay(*spend, piped="y\n").code, posts(sandbox, "/payments/stk")) == (0, 1)


@pytest.mark.usefixtures("virtual")
def test_a_payout_is_asked_about(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    shop, own = tmp_path / "shop.db", f"sqlite:///{tmp_path / 'probe.db'}"
    spend = ("probe", "--spend", "21", "--phone", PHONE, "--journal", own)
    refused = momopay(*spend, piped="n\n", MOMOPAY_JOURNAL=str(shop))
    question = "Send one prompt and a payout of KES 10, again with its key, for at most KES 21.00 in all, and"
    assert refused.says(1, question)
    done = momopay(*spend, piped="y\n", MOMOPAY_JOURNAL=str(shop))
    assert (done.code, posts(sandbox, "/payments/stk"), posts(sandbox, "/b2c/payouts")) == (0, 1, 2)
    assert "Sending a payout of KES 10 to 2547*****678, reference PROBE" in done.err
    assert ((tmp_path / "probe.db").exists(), shop.exists()) == (True, False)


def test_what_the_sdk_cannot_use_comes_first(momopay: Shell, client: Client, sandbox: Sandbox, profile: Path) -> None:
    made = client.stk.initiate(amount=1, phone=PHONE)
    momopay("probe", "--out", str(profile))
    sandbox.spoil(made.transaction_id, "phone", None)
    for options in ((), ("--against", str(profile))):
        done = momopay("probe", *options)
        assert done.out.startswith("momopay cannot use an item of the list: phone: Input should be a valid string\n")
        assert done.code == len(options[:1])


def test_senseless_options_send_nothing(momopay: Shell, sandbox: Sandbox) -> None:
    for spend, phone in (("1", ()), ("3", ("--phone", PHONE)), ("10", ("--phone", PHONE)), ("1", ("--phone", "12"))):
        assert momopay("probe", "--spend", spend, *phone, "--yes").code == 2
    assert momopay("probe", "--phone", PHONE, "--yes").code == 2
    assert sandbox.requests == []


def test_a_live_key_is_asked_about(momopay: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOMOPAY_TEST_RUN", raising=False)
    live = {"MOMOPAY_API_KEY": "pk_live_secret", "MOMOPAY_BASE_URL": "https://127.0.0.2.example/v1"}
    refused = momopay("probe", "--write", "--rate", **live)
    assert refused.says(1, "This is a live key: the probe will create and delete a channel and use up a minute's")
    assert momopay.at_a_terminal("probe", "--write", typed="n\n", **live).code == 1
    spend = ("probe", "--spend", "1", "--phone", PHONE, "--journal", str(tmp_path / "probe.db"))
    assert momopay(*spend, "--yes", piped="", **live).code == 2
    assert momopay(*spend, "--confirm-live", "2", **live).code == 2
    assert not (tmp_path / "probe.db").exists()


@pytest.mark.usefixtures("virtual")
def test_a_signal_leaves_no_channel(momopay: Shell, sandbox: Sandbox, account: Account) -> None:
    """It comes while the probe, which has created its channel, waits for an answer."""
    # The first PATCH is of a channel that does not exist.
    for fault in (Fault.error_before_commit, Fault.hang_after_commit):
        sandbox.fail_next("PATCH", "/payment-wallet/channels/{id}", fault)
    created: list[int] = []

    def is_waiting() -> bool:
        created.append(len(list(account.live_channels())))
        return sum(request.method == "PATCH" for request in sandbox.requests) > 1

    with signalling([signal.SIGTERM], is_waiting):
        done = momopay("probe", "--write", "--json")
    assert (done.code, "Terminated." in done.err, created[-1]) == (143, True, 2)
    assert [channel.name for channel in account.live_channels()] == ["Sandbox Paybill"]
