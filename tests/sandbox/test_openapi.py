"""The OpenAPI document is that of an account's switches, and every answer is the one described.

schemathesis makes the requests, with all of its checks; MOMOPAY_CONTRACT_EXAMPLES widens it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from momopay.sandbox import Sandbox, Switches
from momopay.sandbox._accounts import CONTRACT, MET
from momopay.sandbox._endpoints import ENDPOINTS, Endpoint
from sandbox.kit import KEY, LISTS, client, set_switches

EXAMPLES = os.environ.get("MOMOPAY_CONTRACT_EXAMPLES", "10")
PROFILES: dict[str, dict[str, Any]] = {
    "default": {},
    "snake": {
        "naming": "snake_case",
        "created_status": 201,
        "delete_answer": "empty",
        "patch_unknown_channel": "TRANSACTION_NOT_FOUND",
        "transaction_not_found_status": 400,
    },
    "lists": {**LISTS, "created_status": 202},
    "strict": {
        "strict_fields": True,
        "strict_callback_urls": True,
        "cancel_ends_as": "FAILED",
        "expired_reads_as": "FAILED",
        "immutable_channel_fields": "ignore",
    },
    "contract": {**CONTRACT.model_dump(), "payout_keys": "forgotten"},
    "met": MET.model_dump(),
    "minimal": {
        "minimal_answers": True,
        "topup_answer": "own",
        "time_filters": False,
        "rate_limit_code": "RATE_LIMITED",
        "payout_callback_field": "callback_url",
    },
}
SAME_BODIES = {"snake", "lists"}
"""Profiles that take the requests of the default one, for which the coverage phase tries the limits of every field,
and the stateful one what follows from what."""
# Which ids there are, no schema can say: a well-formed one that is unknown is refused with 400 even so.
BY_STATE = {"CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND", "CREDENTIAL_NOT_FOUND", "DUPLICATE_SHORTCODE"}
# A change of which no field is known: unknown ones are ignored, and a schema counts them as well.
BY_STATE.add("EMPTY_UPDATE")


TRANSACTION_READ = '"TransactionRead":{"properties":{"transaction_id"'
"""How the schema of a read begins in snake_case."""


def document(sandbox: Sandbox, key: str = KEY) -> Any:
    with client(sandbox.url, key) as api:
        return api.get("/openapi.json").json()


def endpoints(sandbox: Sandbox) -> list[Endpoint]:
    return [each for each in ENDPOINTS if each.exists_under(sandbox.account(KEY).switches)]


@pytest.mark.whole
@pytest.mark.parametrize("profile", PROFILES)
def test_many_answers_are_those_described(sandbox: Sandbox, tmp_path: Path, profile: str) -> None:
    pytest.importorskip("schemathesis")
    set_switches(sandbox, **PROFILES[profile])
    sandbox.account(KEY).switches.health_rule = False
    described = document(sandbox)
    # Else a missing key, which schemathesis adds to every call, counts as wrong data.
    del described["security"]
    for methods in described["paths"].values():
        for operation in methods.values():
            del operation["security"]
    (tmp_path / "openapi.json").write_text(json.dumps(described))
    command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", sandbox.url]
    command += ["--auth", f"{KEY}:", "--checks", "all", "--seed", "1"]
    command += ["--continue-on-failure", "--max-examples", EXAMPLES]
    command += ["--phases", "examples,fuzzing"] if profile in SAME_BODIES else []
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"Tested: {len(endpoints(sandbox))}" in ran.stdout, ran.stdout + ran.stderr
    found = ran.stdout.split("Test Case ID: ")[1:]
    assert [part for part in found if not any(code in part for code in BY_STATE)] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_the_document_is_that_of_the_switches(sandbox: Sandbox, profile: str) -> None:
    set_switches(sandbox, **PROFILES[profile])
    switches, described = sandbox.account(KEY).switches, document(sandbox)
    schemas, paths = described["components"]["schemas"], described["paths"]
    snake = switches.item_naming == "snake_case"
    item = schemas["TransactionItem"]["properties"]
    created = paths["/v1/payments/stk"]["post"]["responses"]
    assert min(created) == str(switches.created_status)
    assert ("transactionId" in schemas["TransactionRead"]["properties"]) == (switches.naming == "camelCase")
    assert ("transactionFee" in item) == (switches.naming == "camelCase")
    phone, time = ("phone_number", "created_at") if snake else ("phone", "createdAt")
    assert ("*" in item[phone]["pattern"]) == (switches.list_phone == "masked")
    assert ("format" in item[time]) == (switches.list_times == "utc")
    assert ("callbackUrl" in schemas["StkBody"]["required"]) == switches.strict_fields
    payout, url = schemas["PayoutBody"]["properties"], switches.payout_callback_field
    urls = {"callbackUrl", "callback_url"}
    assert urls & payout.keys() == (urls if url == "either" else {url})
    assert ("credential_id" in payout) == switches.payout_credentials
    longest = 120 if switches.long_texts == "fail" else 12
    assert f'"maxLength": {longest}}}' in json.dumps(schemas["StkBody"]["properties"]["accountReference"])
    filters = {each["name"] for each in paths["/v1/transactions"]["get"]["parameters"]}
    assert ({"from", "to"} <= filters) == switches.time_filters
    assert ("idempotencyKey" in schemas["TopUpInitiated"]["properties"]) == (switches.topup_answer == "own")
    assert schemas["NewChannelBody"]["properties"]["type"]["enum"] == list(switches.known_channel_types)
    plain = document(sandbox, "pk_test_plain")["components"]["schemas"]
    same = all(schemas[name] == plain[name] for name in plain if name.endswith("Body"))
    assert same == (profile in {"default", *SAME_BODIES})
    removed = paths["/v1/payment-wallet/channels/{id}"]["delete"]["responses"]
    assert ("204" in removed) == (switches.delete_answer == "empty")
    unknown = paths["/v1/transactions/{id}"]["get"]["responses"][str(switches.transaction_not_found_status)]
    assert "TRANSACTION_NOT_FOUND" in unknown["description"]
    with client(sandbox.base_url) as api:
        body = paths["/v1/payments/stk"]["post"]["requestBody"]["content"]["application/json"]["example"]
        sent = api.post("/payments/stk", json=body)
        example = created[min(created)]["content"]["application/json"]["example"]
        assert (sent.status_code, set(sent.json()["data"])) == (switches.created_status, set(example["data"]))


def test_whose_document_it_is(sandbox: Sandbox) -> None:
    def naming(query: str = "", key: str | None = None) -> str:
        auth = None if key is None else (key, "")
        answer = httpx.get(f"{sandbox.url}/openapi.json{query}", auth=auth, trust_env=False, verify=False)
        return "snake" if TRANSACTION_READ in answer.text else str(answer.status_code)

    set_switches(sandbox, "pk_test_snake", naming="snake_case")
    sandbox.account("pk_test_camel")
    assert naming(f"?account={sandbox.account('pk_test_snake').tenant_id}") == "snake"
    assert (naming("?account=pk_test_snake"), naming(key="pk_test_snake")) == ("snake", "snake")
    assert (naming("?account=pk_test_camel"), naming("?account=nobody")) == ("200", "404")
    # The accounts differ: that of a fresh one.
    assert naming() == "200"
    with Sandbox(speed=0) as alone:
        set_switches(alone, "pk_test_only", naming="snake_case")
        assert TRANSACTION_READ in httpx.get(f"{alone.url}/openapi.json", trust_env=False, verify=False).text


@pytest.mark.parametrize("profile", ["default", "contract"])
def test_what_generators_of_clients_need(sandbox: Sandbox, profile: str) -> None:
    set_switches(sandbox, **PROFILES[profile])
    described = document(sandbox)
    assert (described["servers"][0]["url"], described["info"]["version"]) == (sandbox.url, "1.0")
    assert described["components"]["securitySchemes"]["apiKey"]["scheme"] == "basic"
    operations = [each for methods in described["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(endpoints(sandbox))
    assert len(operations) == (11 if profile == "default" else 14)
    assert {tag for each in operations for tag in each["tags"]} == {tag["name"] for tag in described["tags"]}
    for each in operations:
        # One schema a body, by name: what is described in place gets a name that nobody knows.
        for content in (each.get("requestBody", {}), *each["responses"].values()):
            for media in content.get("content", {}).values():
                assert set(media["schema"]) == {"$ref"}
                assert "example" in media or "examples" in media
    for name, schema in described["components"]["schemas"].items():
        assert not {"anyOf", "oneOf", "allOf"} & set(schema), name
        if not name.endswith("Body"):
            # Every field of an answer is always there, constants included.
            assert schema.get("required", []) == list(schema.get("properties", [])), name
    defaults = [line for line in json.dumps(described, indent=1).splitlines() if '"default":' in line]
    assert [line.strip() for line in defaults] == ['"default": 20']


def test_every_documented_error_has_an_example(sandbox: Sandbox) -> None:
    responses = document(sandbox)["paths"]["/v1/payments/stk"]["post"]["responses"]
    codes = {
        status: set(response["content"]["application/json"].get("examples", {}))
        for status, response in responses.items()
    }
    assert codes["400"] >= {"INVALID_PHONE", "NO_PAYMENT_CHANNELS", "NO_DEFAULT_CHANNEL", "CHANNEL_NOT_FOUND"}
    assert (codes["401"], codes["402"]) == ({"INVALID_API_KEY"}, {"INSUFFICIENT_SERVICE_BALANCE"})
    assert codes["429"] == {"RATE_LIMIT_EXCEEDED", "STK_TEMP_BANNED", "TRANSACTION_HEALTH_BLOCKED"}
    for endpoint in ENDPOINTS:
        assert {status for _, status in endpoint.errors_under(Switches())} <= {400, 401, 402, 403, 404, 409, 413, 429}


def test_a_405_names_every_method_of_the_path(api: httpx.Client) -> None:
    for path, allowed in (
        ("/payments/stk", "POST"),
        ("/payment-wallet/channels", "GET, POST"),
        ("/payment-wallet/channels/x", "GET, PATCH, DELETE"),
    ):
        answer = api.put(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert answer.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
