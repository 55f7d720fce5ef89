from examples.runs import Service, run


def test_the_plain_command_collects_once_and_pays_back() -> None:
    ended = run("quickstart.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = {line[:10].strip(): line[12:] for line in ended.stdout.splitlines()}
    assert lines["Callback"].startswith("transaction.success, receipt ")
    assert lines["Confirmed"] == "the service's own record says SUCCESS"
    assert (lines["Paid"].split()[0], lines["Settled"]) == ("SUCCESS", "SUCCESS")
    assert (lines["Again"], lines["Wallet"]) == ("no second prompt; INV-42 is SUCCESS", "KES 9998 left for fees")


def test_on_a_real_service_it_asks_before_money_moves(service: Service) -> None:
    ended = run("quickstart.py", env=service.env(), typed="\n")
    assert (ended.returncode, "nothing was sent" in ended.stderr) == (1, True), ended.stdout + ended.stderr
    assert service.moved("fee").total() == 0
