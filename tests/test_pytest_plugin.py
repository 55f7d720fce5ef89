"""The pytest plugin as a merchant uses it: pytest runs tests of their own."""

import os
import subprocess
import sys

import pytest

from momopay.pytest_plugin import TEST_RUN

CHECKOUT = """
    from momopay import PollSchedule, parse_callback

    def test_checkout(momopay_sandbox, momopay_client):
        prompt = momopay_client.stk.initiate(amount=100, phone="0712345678", account_reference="INV-42")
        momopay_sandbox.advance(60)
        paid = momopay_client.transactions.wait(prompt, schedule=PollSchedule(first=0))
        assert paid.status == "SUCCESS"
        assert [movement.kind for movement in momopay_sandbox.ledger].count("stk") == 1

    def test_each_test_starts_anew(momopay_sandbox, momopay_client):
        assert momopay_sandbox.requests == []
        assert momopay_client.transactions.list().items == []

    def test_without_kyc(momopay_client, momopay_account):
        import momopay, pytest
        momopay_account.kyc_approved = False
        with pytest.raises(momopay.KycNotVerifiedError):
            momopay_client.payouts.initiate(amount=10, phone="0712345678", reference="P-1")
"""

ASYNC = """
    import asyncio, gc

    def test_async(momopay_async_client):
        async def main():
            first = await momopay_async_client.wallet.balance()
            second = await momopay_async_client.wallet.balance()
            return first.available_balance + second.available_balance
        assert asyncio.run(main()) == 20000
        gc.collect()
"""

EACH_PROFILE = """
    import pytest

    @pytest.fixture(scope="session", params=[None, "contract", "met"])
    def momopay_profile(request):
        return request.param

    def test_the_receipt(momopay_profile, momopay_account):
        expected = {None: "momo_receipt", "contract": "mpesa_receipt", "met": "mpesa_receipt"}
        assert momopay_account.switches.receipt_field == expected[momopay_profile]
"""

WITH_JOURNAL = """
    import pytest

    @pytest.mark.parametrize("number", [1, 2])
    def test_the_same_order(momopay_sandbox, momopay_client, momopay_journal, number):
        client = momopay_client.with_options(journal=momopay_journal)
        assert client.stk.collect_once(reference="INV-1", amount=100, phone="0712345678").is_new
        momopay_sandbox.advance(60)
        assert client.transactions.sweep().settled == 1
        assert [each.reference for each in momopay_journal.entries()] == ["INV-1"]
"""

LIVE = """
    import momopay, pytest

    def test_live(monkeypatch):
        with pytest.raises(momopay.ConfigurationError, match="live key in a test run"):
            momopay.Client("pk_live_real", base_url="https://api.example/v1")
        monkeypatch.setenv("MOMOPAY_API_KEY", "pk_live_real")
        with pytest.raises(momopay.ConfigurationError, match="live key in a test run"):
            momopay.AsyncClient(base_url="https://api.example/v1")
"""


def run(pytester: pytest.Pytester, tests: str) -> pytest.RunResult:
    pytester.makepyfile(tests)
    return pytester.runpytest_inprocess(
        *(f"-p{name}" for name in ("no:momopay", "no:schemathesis", "momopay.pytest_plugin")), "-Werror"
    )


def test_a_merchants_own_tests(pytester: pytest.Pytester) -> None:
    """A checkout; an async client, which leaves nothing open; and a live key, which is refused in a test run."""
    run(pytester, CHECKOUT + ASYNC + LIVE).assert_outcomes(passed=5)


@pytest.mark.parametrize("where", ["file", "environment", "ini"])
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.whole)])
def test_each_test_has_a_journal_of_its_own_in_one_database(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    database: str,
    where: str,
) -> None:
    monkeypatch.delenv("MOMOPAY_TEST_JOURNAL", raising=False)
    url = f"sqlite:///{pytester.path}/all.db"
    if database == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    if where == "environment":
        monkeypatch.setenv("MOMOPAY_TEST_JOURNAL", url)
    elif where == "ini":
        pytester.makeini(f"[pytest]\nmomopay_journal = {url}")
    for _ in range(2):  # a second run on what the first one left
        run(pytester, WITH_JOURNAL).assert_outcomes(passed=2)
    if database == "sqlite":
        assert (pytester.path / "all.db").exists() == (where != "file")


def test_a_test_runs_under_each_profile(pytester: pytest.Pytester) -> None:
    run(pytester, EACH_PROFILE).assert_outcomes(passed=3)


@pytest.mark.parametrize("before", [None, "0"])
def test_the_mark_of_a_test_run_ends_with_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv(TEST_RUN, raising=False)
    else:
        monkeypatch.setenv(TEST_RUN, before)
    run(pytester, f"import os\ndef test_it(): assert os.environ['{TEST_RUN}'] == '1'").assert_outcomes(passed=1)
    assert os.environ.get(TEST_RUN) == before


def test_the_fixture_says_which_extra_to_install(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "momopay.sandbox", None)
    result = run(pytester, "def test_it(momopay_sandbox): ...")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*pip install "momopay[[]sandbox[]]"*'])


def test_a_run_that_uses_no_fixture_loads_nothing() -> None:
    code = "import sys, pytest, momopay.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "pydantic", "fastapi", "uvicorn", "momopay.client", "momopay.sandbox"} & set(loaded)
