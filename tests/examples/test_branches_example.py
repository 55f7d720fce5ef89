import tomllib
from typing import Any

from examples.runs import EXAMPLES, Service, run
from momopay import Client

BRANCHES = tomllib.loads((EXAMPLES / "branches.toml").read_text())


def test_a_branch_without_a_channel_stops_the_program_at_its_start(service: Service) -> None:
    ended = run("branches.py", env=service.env())
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "LookupError: no channel on the account for: westlands, mombasa" in ended.stderr


def test_a_sale_uses_the_channel_and_the_credentials_of_its_branch(service: Service, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    branches: Any = __import__("branches")
    with Client(service.key, base_url=service.sandbox.base_url) as client:
        for name in ("westlands", "mombasa"):
            client.channels.create(name=name, type="TILL_NUMBER", shortcode=BRANCHES[name]["shortcode"])
        routes = branches.Branches(client, EXAMPLES / "branches.toml")
        for number, name in enumerate(BRANCHES):
            routes.sell(name, amount=100 + number, phone="0712345678", reference=f"SALE-{number}")
        service.sandbox.advance(60)
        channels = {channel.shortcode: channel.id for channel in client.channels.list()}
    sent: list[Any] = [
        request.json
        for request in service.sandbox.requests
        if request.path == "/payments/stk" and b"SALE-" in request.body
    ]
    expected = [(channels[branch["shortcode"]], branch.get("credential_id")) for branch in BRANCHES.values()]
    assert [(body["channelId"], body.get("credential_id")) for body in sent] == expected
    assert service.moved("stk") == {"SALE-0": 1, "SALE-1": 1, "SALE-2": 1}
    shown = run("branches.py", env=service.env())
    assert "westlands    1 sales, KES 100" in shown.stdout, shown.stderr
    assert "head-office  1 sales, KES 102" in shown.stdout, shown.stderr
