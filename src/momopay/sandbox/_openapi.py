"""The OpenAPI document of the service, as the switches of one account make it behave."""

import json
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from momopay.sandbox._accounts import Switches
from momopay.sandbox._bodies import (
    Body,
    ChannelChangesBody,
    NewChannelBody,
    PayoutBody,
    callback_fields,
    callback_url_pattern,
    limits_under,
)
from momopay.sandbox._endpoints import ENDPOINTS, Endpoint
from momopay.sandbox._refusals import CODES, DETAILS, Refusal
from momopay.sandbox._serializers import record_under

Json = dict[str, Any]
_PREFIX = "/v1"
_REQUEST_ID = "00000000-0000-0000-0000-000000000001"
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
    paths: Json = {}
    endpoints = [endpoint for endpoint in ENDPOINTS if endpoint.exists_under(switches)]
    schemas = _schemas(endpoints, switches, callback_hosts)
    for endpoint in endpoints:
        described = _operation(endpoint, switches, schemas)
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
        "components": {"schemas": schemas, "securitySchemes": {"apiKey": scheme}},
    }


def _operation(endpoint: Endpoint, switches: Switches, schemas: Json) -> Json:
    described: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "security": [{"apiKey": []}],
    }
    if parameters := [*([_ID] if "{id}" in endpoint.path else ()), *endpoint.parameters_under(switches)]:
        described["parameters"] = deepcopy(parameters)  # because callers may change the document
    if endpoint.body is not None:
        described["requestBody"] = {"required": True, "content": _content(endpoint.body.__name__, schemas)}
    described["responses"] = _responses(endpoint, switches, schemas)
    if endpoint.calls_back:
        post = {
            "summary": "The payment has ended",
            "requestBody": {"required": True, "content": _content("Callback", schemas)},
            "responses": {"200": {"description": "Any 2xx acknowledges it; else it is sent again"}},
        }
        names = callback_fields(endpoint.body or Body, switches)
        described["callbacks"] = {"ended": {f"{{$request.body#/{name}}}": {"post": post} for name in names}}
    return described


def _responses(endpoint: Endpoint, switches: Switches, schemas: Json) -> Json:
    status = endpoint.status_under(switches)
    responses: Json = {str(status): {"description": "Done"}}
    if status != HTTPStatus.NO_CONTENT:
        responses[str(status)]["content"] = _content(f"{endpoint.record}Envelope", schemas)
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


def _content(name: str, schemas: Json) -> Json:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"application/json": {"schema": schema, "example": _example(schema, schemas)}}


def _error_example(code: str, switches: Switches) -> Json:
    refusal = Refusal(code, details=DETAILS.get(code))
    return {**json.loads(refusal.body(switches.error_messages)), "requestId": _REQUEST_ID}


def _schemas(endpoints: Sequence[Endpoint], switches: Switches, callback_hosts: Collection[str]) -> Json:
    records = {endpoint.record: record_under(endpoint.record, switches) for endpoint in endpoints}
    bodies = {endpoint.body for endpoint in endpoints if endpoint.body is not None}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(record_under("Callback", switches), "serialization")]
    modes.extend((record, "serialization") for record in records.values())
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
        _limit(fields, limits_under(body, switches))
        if body is PayoutBody and not switches.payout_credentials:
            del fields["credential_id"]
        if body is ChannelChangesBody and switches.more_codes:
            schema["minProperties"] = 1
        if body is NewChannelBody:
            fields["type"]["enum"] = list(switches.known_channel_types)
        if switches.strict_fields and body.optional:
            _require_all(schema, {str(body.model_fields[name].alias) for name in body.optional})
        if "callbackUrl" in fields:
            _rename(schema, "callbackUrl", callback_fields(body, switches))
    for name in records:
        schemas[f"{name}Envelope"] = _envelope("data", name, success=True)
    error = {"message": _MESSAGES[switches.error_messages], "code": {"type": "string"}, "details": {"type": "object"}}
    schemas["ErrorDetail"] = {"type": "object", "properties": error, "required": list(error)}
    schemas["ErrorEnvelope"] = _envelope("error", "ErrorDetail", success=False)
    return dict(sorted(schemas.items()))


def _envelope(field: str, schema: str, *, success: bool) -> Json:
    properties = {
        "success": {"type": "boolean", "const": success},
        field: {"$ref": f"#/components/schemas/{schema}"},
        "requestId": {"type": "string", "format": "uuid", "examples": [_REQUEST_ID]},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def _plain(schema: Json) -> Json:
    """Return a schema without pydantic's titles and defaults, which are not the service's."""

    # No field of the service has one of these names.
    def kept(part: Json) -> Json:
        return {name: each for name, each in part.items() if name not in {"title", "default"}}

    plain: Json = json.loads(json.dumps(schema), object_hook=kept)
    return plain


def _rename(schema: Json, name: str, names: Sequence[str]) -> None:
    """Describe a field under other names. Where it is required, there is one name, since any would do."""
    described = schema["properties"].pop(name)
    schema["properties"] |= {each: deepcopy(described) for each in names}
    if name in schema.get("required", ()):
        required = [each for each in schema["required"] if each != name]
        schema["required"] = required + list(names if len(names) == 1 else ())


def _limit(fields: Json, limits: Mapping[str, int]) -> None:
    for name, limit in limits.items():
        shown = fields.get(to_camel(name), {})
        for part in (shown, *shown.get("anyOf", ())):
            if part.get("type") == "string":
                part["maxLength"] = min(limit, part.get("maxLength", limit))


def _require_all(schema: Json, optional: set[str]) -> None:
    """Require every field that is not optional, for the switch `strict_fields`. A null counts as missing."""
    for name, part in schema["properties"].items():
        if name not in optional and "anyOf" in part:
            (schema["properties"][name],) = [each for each in part["anyOf"] if each.get("type") != "null"]
    schema["required"] = [name for name in schema["properties"] if name not in optional]


def _example(schema: Json, schemas: Json) -> Any:
    """Return an example of a schema, made of those of its parts; None if it has none."""
    if known := schema.get("examples") or schema.get("enum"):
        return known[0]
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "properties" in schema:
        parts = {name: _example(part, schemas) for name, part in schema["properties"].items()}
        # What may be left out is shown only if it has an example.
        return {name: part for name, part in parts.items() if part is not None or name in schema.get("required", ())}
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas)]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], schemas)
    return schema.get("const")
