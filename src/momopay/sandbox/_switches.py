"""Choices where the service is specified in two ways or in none; docs/test/sandbox.md has the reasons."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]


class Switches(BaseModel):
    """One account's switches; assign to an attribute to turn it. Durations are virtual seconds."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True, extra="forbid")

    naming: Literal["camelCase", "snake_case"] = "camelCase"
    cancel_ends_as: Literal["CANCELLED", "FAILED"] = "CANCELLED"
    expired_reads_as: Literal["EXPIRED", "FAILED"] = "EXPIRED"
    fee_refunded_on_failure: bool = False
    callback_posts: Literal[5, 6] = 6
    callback_on_reversed: bool = False
    late_pin: bool = False
    strict_callback_urls: bool = False
    strict_fields: bool = False
    rate_window: Literal["fixed", "sliding"] = "fixed"
    created_status: Literal[200, 201, 202] = 200
    delete_answer: Literal["envelope", "empty"] = "envelope"
    immutable_channel_fields: Literal["refuse", "ignore"] = "refuse"
    patch_unknown_channel: Literal["CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND"] = "CHANNEL_NOT_FOUND"
    transaction_not_found_status: Literal[400, 404] = 404
    list_phone: Literal["whole", "masked"] = "whole"
    list_amount: Literal["amount", "with_fee"] = "amount"
    list_type: Literal["upper", "lower"] = "upper"
    list_times: Literal["utc", "local"] = "utc"
    health_rule: bool = True
    # No threshold is specified, and one that nobody expects would break tests that fail payments on purpose: off.
    ban_pushes: Annotated[int, Field(ge=1)] | None = None
    ban_window: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    ban_success_rate: Share = 0.2
