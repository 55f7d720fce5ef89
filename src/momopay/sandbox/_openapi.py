"""The OpenAPI document of the service, as the switches of one account make it behave."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from momopay.sandbox._accounts import Switches
from momopay.sandbox._bodies import CONTRACT_LIMITS, Body, NewChannelBody, callback_field, callback_url_pattern
from momopay.sandbox._endpoints import ENDPOINTS, Endpoint
from momopay.sandbox._lifecycle import enter
from momopay.sandbox._payments import Call
from momopay.sandbox._records import Status
from momopay.sandbox._refusals import CODES, DETAILS, Refusal
from momopay.sandbox._serializers import Callback, callback_payload, record_under
from momopay.sandbox._state import ServiceState

Json = dict[str, Any]
_PREFIX = "/v1"
_KEY = "pk_test_example"
_NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=mr-|co-)[0-9a-f]{16}")
_ID: Json = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "format": "uuid"},
    "description": "Its id",
}
_MESSAGES: Mapping[str, Json] = {
    "text": {"type": "string"},
    "array": {"type": ["string", "array"], "items": {"type": "string"}},
}
_RATE_LIMIT_HEADERS = {
    "x-ratelimit-limit": "Requests a minute",
    "x-ratelimit-remaining": "Requests that are left",
    "x-ratelimit-reset": "When all are left again, as a Unix time",
}


def openapi(switches: Switches, url: str, callback_hosts: Collection[str]) -> Json:
    """Return the document for an account with these switches, on the server at `url`."""
    examples = _Examples(switches)
    paths: Json = {}
    endpoints = [endpoint for endpoint in ENDPOINTS if endpoint.exists_under(switches)]
    for endpoint in endpoints:
        described = _operation(endpoint, switches, examples)
        paths.setdefault(_PREFIX + endpoint.path, {})[endpoint.method.lower()] = described
    scheme = {"type": "http", "scheme": "basic", "description": "The API key as user name, no password"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mobile-money payments service (sandbox)",
            "version": "1.0",
            "description": "Payments of one account, as its switches describe the service.",
        },
        "servers": [{"url": url, "description": "This sandbox"}],
        "security": [{"apiKey": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {"schemas": _schemas(endpoints, switches, callback_hosts), "securitySchemes": {"apiKey": scheme}},
    }


def _operation(endpoint: Endpoint, switches: Switches, examples: "_Examples") -> Json:
    described: Json = {
        "operationId": endpoint.name,
        "summary": (endpoint.operation.__doc__ or "").rstrip("."),
        "tags": [endpoint.tag],
        "security": [{"apiKey": []}],
    }
    if parameters := [*([_ID] if "{id}" in endpoint.path else ()), *endpoint.parameters_under(switches)]:
        described["parameters"] = deepcopy(parameters)  # because callers may change the document
    if endpoint.body is not None:
        content = _content(endpoint.body.__name__, examples.bodies[endpoint.name])
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = _responses(endpoint, switches, examples)
    if endpoint.calls_back:
        payload = _content("Callback", examples.callback)
        post = {
            "summary": "The payment has ended",
            "requestBody": {"required": True, "content": payload},
            "responses": {"200": {"description": "Any 2xx acknowledges it; else it is sent again"}},
        }
        url = f"{{$request.body#/{callback_field(endpoint.body or Body, switches)}}}"
        described["callbacks"] = {"ended": {url: {"post": post}}}
    return described


def _responses(endpoint: Endpoint, switches: Switches, examples: "_Examples") -> Json:
    status = endpoint.status_under(switches)
    responses: Json = {str(status): {"description": "Done"}}
    if status != HTTPStatus.NO_CONTENT:
        name = record_under(endpoint.record, switches).__name__
        responses[str(status)]["content"] = _content(f"{name}Envelope", examples.answers[endpoint.name])
    errors = list(endpoint.errors_under(switches))
    for error_status in sorted({each for _, each in errors}):
        codes = [code for code, each in errors if each == error_status]
        # OpenAPI describes each status once, so its examples show the codes that share it.
        shown = {code: {"summary": CODES[code][1], "value": _error_example(code, switches)} for code in codes}
        response: Json = {
            "description": ", ".join(codes),
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}, "examples": shown}
            },
        }
        if error_status == HTTPStatus.TOO_MANY_REQUESTS:  # all three codes have the header
            response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Whole seconds"}}
        responses[str(error_status)] = response
    if switches.rate_limit_headers:
        described = {
            name: {"schema": {"type": "integer"}, "description": text} for name, text in _RATE_LIMIT_HEADERS.items()
        }
        for response in responses.values():
            response["headers"] = {**response.get("headers", {}), **described}
    return responses


def _content(schema: str, example: Any) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}}


def _error_example(code: str, switches: Switches) -> Json:
    refusal = Refusal(code, details=DETAILS.get(code))
    return {**json.loads(refusal.body(switches.error_messages)), "requestId": str(UUID(int=1))}


def _schemas(endpoints: Sequence[Endpoint], switches: Switches, callback_hosts: Collection[str]) -> Json:
    records = {record_under(endpoint.record, switches) for endpoint in endpoints}
    bodies = {endpoint.body for endpoint in endpoints if endpoint.body is not None}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(record_under(Callback, switches), "serialization")]
    modes.extend((record, "serialization") for record in records)
    modes.extend((body, "validation") for body in bodies)
    _, found = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    schemas: Json = {name: _plain(schema) for name, schema in found["$defs"].items()}
    pattern = callback_url_pattern(callback_hosts, strict=switches.strict_callback_urls)
    for body in bodies:
        schema = schemas[body.__name__]
        fields = schema["properties"]
        for part in fields.get("callbackUrl", {}).get("anyOf", ()):
            if part.get("format") == "uri":
                part["pattern"] = pattern
        if switches.field_limits == "contract":
            _limit(fields)
        if "callbackUrl" in fields:
            fields[callback_field(body, switches)] = fields.pop("callbackUrl")
        if body is NewChannelBody:
            fields["type"]["enum"] = list(switches.known_channel_types)
        if switches.strict_fields and body.optional:
            _require_all(schema, {str(body.model_fields[name].alias) for name in body.optional})
    for record in records:
        schemas[f"{record.__name__}Envelope"] = _envelope("data", record.__name__, success=True)
    error = {"message": _MESSAGES[switches.error_messages], "code": {"type": "string"}, "details": {"type": "object"}}
    schemas["ErrorDetail"] = {"type": "object", "properties": error, "required": list(error)}
    schemas["ErrorEnvelope"] = _envelope("error", "ErrorDetail", success=False)
    return dict(sorted(schemas.items()))


def _envelope(field: str, schema: str, *, success: bool) -> Json:
    properties = {
        "success": {"type": "boolean", "const": success},
        field: {"$ref": f"#/components/schemas/{schema}"},
        "requestId": {"type": "string", "format": "uuid"},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def _plain(schema: Json) -> Json:
    """Return a schema without pydantic's titles and defaults, which are not the service's."""

    # No field of the service has one of these names.
    def kept(part: Json) -> Json:
        return {name: each for name, each in part.items() if name not in {"title", "default"}}

    plain: Json = json.loads(json.dumps(schema), object_hook=kept)
    return plain


def _limit(fields: Json) -> None:
    """Add the limits of the switch `field_limits`."""
    for name, limit in CONTRACT_LIMITS.items():
        shown = fields.get(to_camel(name), {})
        for part in (shown, *shown.get("anyOf", ())):
            if part.get("type") == "string":
                part["maxLength"] = limit


def _require_all(schema: Json, optional: set[str]) -> None:
    """Require every field that is not optional, for the switch `strict_fields`. A null counts as missing."""
    for name, part in schema["properties"].items():
        if name not in optional and "anyOf" in part:
            (schema["properties"][name],) = [each for each in part["anyOf"] if each.get("type") != "null"]
    schema["required"] = [name for name in schema["properties"] if name not in optional]


class _Examples:
    """Examples of every body and response. The responses are those of a service that is made for them."""

    def __init__(self, switches: Switches) -> None:
        state = ServiceState(switches=switches)
        account_state = state.account_of(_KEY, _NOW)
        self.bodies: dict[str, Json] = {}
        self.answers: dict[str, Json] = {}
        # In the order of the table, a read follows the operation that created what it reads.
        last_id = ""
        for endpoint in ENDPOINTS:
            name = endpoint.name
            if endpoint.body is not None:
                self.bodies[name] = _body_example(endpoint.body, switches)
            call = Call(
                state=state,
                account_state=account_state,
                now=_NOW,
                id=last_id,
                body=json.dumps(self.bodies.get(name, {})).encode(),
            )
            answer = endpoint.operation(call).model_dump(by_alias=True)
            last_id = answer.get("transactionId") or answer.get("id") or last_id
            self.answers[name] = {"success": True, "data": answer, "requestId": str(UUID(int=1))}
        paid = next(iter(state.transactions.values()))
        enter(state, paid, Status.SUCCESS, "0", _NOW)
        paid.receipt = "TCK4H7X2QP"
        self.callback = callback_payload(paid, "transaction.success", Status.SUCCESS, switches)
        self._fix_ids()

    def _fix_ids(self) -> None:
        """Replace the random ids, so that the document is always the same."""
        names: dict[str, str] = {}

        def fixed(found: re.Match[str]) -> str:
            number = len(names) + 2
            text = str(UUID(int=number)) if "-" in found[0] else f"{number:016x}"
            return names.setdefault(found[0], text)

        text = json.dumps([self.answers, self.callback])
        self.answers, self.callback = json.loads(_RANDOM.sub(fixed, text))


def _body_example(body: type[Body], switches: Switches) -> Json:
    example: Json = {}
    for name, part in body.model_json_schema()["properties"].items():
        # A field that may be null has its example inside `anyOf`.
        for each in (part, *part.get("anyOf", ())):
            if "examples" in each:
                example[callback_field(body, switches) if name == "callbackUrl" else name] = each["examples"][0]
    return example
