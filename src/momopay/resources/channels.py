"""Payment channels: registered shortcodes that STK requests are routed through."""

from __future__ import annotations

from http import HTTPStatus

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.retry import AT_MOST_ONCE, IDEMPOTENT, SAFE
from momopay._ratelimit.budget import Lane
from momopay.errors import APIError
from momopay.models.arguments import ChannelRef
from momopay.models.channels import ChannelItems, PaymentChannel
from momopay.models.enums import ChannelType
from momopay.models.records import Envelope, Nothing
from momopay.models.request_base import UNSET
from momopay.models.requests import ChannelChanges, ChannelRequest, channel_path

__all__ = ["Channels"]

LIST = Endpoint("GET", SAFE, Lane.READ, Envelope[ChannelItems])
GET = Endpoint("GET", SAFE, Lane.READ, Envelope[PaymentChannel])
CREATE = Endpoint("POST", AT_MOST_ONCE, Lane.READ, Envelope[PaymentChannel])
UPDATE = Endpoint("PATCH", IDEMPOTENT, Lane.READ, Envelope[PaymentChannel])
DELETE: Endpoint[Nothing] = Endpoint("DELETE", IDEMPOTENT, Lane.READ, None)


class Channels(Resource[BackendT]):
    """Payment channels (SPEC.md, "Payment channel")."""

    @operation
    async def list(self) -> list[PaymentChannel]:
        """List the account's channels. Repeated as needed.

        Rests on SPEC.md, "GET /payment-wallet/channels".

        Returns:
            The default channel first, then newest to oldest; deleted ones never.

        Raises:
            APIConnectionError: The service was not reached, or did not answer; try again.
            ServerError: The service failed to the end; try again later.
            APIError: Any other refusal.
        """
        listed = await call(self._session, LIST, "/payment-wallet/channels")
        return listed.items

    @operation
    async def get(self, channel_id: ChannelRef) -> PaymentChannel:
        """Read one channel. Repeated as needed. Rests on SPEC.md, "GET /payment-wallet/channels/{id}".

        Args:
            channel_id: The channel's id, or the channel.

        Returns:
            The channel as it is now.

        Raises:
            RequestValidationError: Not an id.
            ChannelNotFoundError: Unknown, another account's, or deleted.
            APIConnectionError: The service was not reached, or did not answer; try again.
            APIError: Any other refusal.
        """
        return await call(self._session, GET, channel_path(channel_id))

    @operation
    async def create(
        self,
        *,
        name: str,
        type: ChannelType | str,  # noqa: A002  the wire's name
        shortcode: str,
        account_number: str | None = None,
        is_default: bool | None = None,
    ) -> PaymentChannel:
        """Register a shortcode. Sent at most once; no money moves.

        Rests on SPEC.md, "POST /payment-wallet/channels".

        Args:
            name: A label for people.
            type: ``PAYBILL``, ``TILL_NUMBER`` or ``SEND_MONEY``; it cannot be changed later.
            shortcode: The Paybill or Till number; it cannot be changed later.
            account_number: Required for ``PAYBILL``.
            is_default: Whether STK requests without a channel go here; the flag leaves the former default.

        Returns:
            The new channel.

        Raises:
            RequestValidationError: Refused here, nothing was sent; mend the arguments in ``.fields``.
            OutcomeUnknownError: The channel may exist; list the channels before you create it again.
            APIConnectionError: The service was not reached; nothing was sent; try again.
            APIError: Any other refusal.
        """
        request = ChannelRequest.checked(
            name=name, type=type, shortcode=shortcode, account_number=account_number, is_default=is_default
        )
        details = PaymentDetails(reference=request.name)
        return await call(self._session, CREATE, "/payment-wallet/channels", body=request.to_json(), details=details)

    @operation
    async def update(
        self,
        channel_id: ChannelRef,
        *,
        name: str | UNSET = UNSET,
        account_number: str | UNSET | None = UNSET,
        is_default: bool | UNSET = UNSET,
    ) -> PaymentChannel:
        """Change a channel; only what is given changes, and None is sent as null. Repeated as needed.

        Active transactions are unaffected. Rests on SPEC.md, "PATCH /payment-wallet/channels/{id}".

        Args:
            channel_id: The channel's id, or the channel.
            name: The new label.
            account_number: The new account number.
            is_default: Whether it becomes the default.

        Returns:
            The channel as it is now.

        Raises:
            RequestValidationError: Refused here, nothing was sent; mend the arguments in ``.fields``.
            APIConnectionError: No answer; ``may_have_executed`` tells whether the change may be in force.
            ServerError: The service failed to the end; read the channel to see whether it changed.
            APIError: Any other refusal; the code for an unknown channel is not shown by SPEC.md.
        """
        changes = ChannelChanges.checked(
            channel_id=channel_id, name=name, account_number=account_number, is_default=is_default
        )
        return await call(self._session, UPDATE, channel_path(changes.channel_id), body=changes.to_json())

    @operation
    async def delete(self, channel_id: ChannelRef) -> None:
        """Delete a channel. Repeated as needed.

        Any 2xx is success, whatever its body, unless that is a refusal; so is "not found" after an unclear
        attempt. Rests on SPEC.md, "DELETE /payment-wallet/channels/{id}".

        Args:
            channel_id: The channel's id, or the channel.

        Raises:
            RequestValidationError: Not an id.
            ChannelInUseError: It has transactions or customers; it cannot be deleted.
            ChannelNotFoundError: Unknown, another account's, or deleted before.
            APIConnectionError: No answer; ``may_have_executed`` tells whether it may be gone.
            ServerError: The service failed to the end; read the channel to see whether it is gone.
            APIError: Any other refusal.
        """
        try:
            await call(self._session, DELETE, channel_path(channel_id))
        except APIError as error:
            if not (error.status_code == HTTPStatus.NOT_FOUND and error.may_have_executed):
                raise
