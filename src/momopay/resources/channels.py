"""Payment channels: registered shortcodes that STK requests are routed through."""

from __future__ import annotations

import builtins
import logging
from http import HTTPStatus

from pydantic import ValidationError

from momopay._core.call import Call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.retry import AT_MOST_ONCE, IDEMPOTENT, SAFE
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.errors import APIError, MomoPayError
from momopay.models.arguments import ChannelRef
from momopay.models.enums import ChannelType
from momopay.models.records import Envelope, Record
from momopay.models.requests import UNSET, ChannelChanges, ChannelRequest, channel_path
from momopay.models.transactions import ChangedChannel, ChannelItems, CreatedChannel, PaymentChannel

LIST = Endpoint("channels.list", "GET", SAFE, Lane.READ, Envelope[ChannelItems])
GET = Endpoint("channels.get", "GET", SAFE, Lane.READ, Envelope[PaymentChannel], has_id=True)
CREATE = Endpoint("channels.create", "POST", AT_MOST_ONCE, Lane.READ, Envelope[CreatedChannel])
UPDATE = Endpoint("channels.update", "PATCH", IDEMPOTENT, Lane.READ, Envelope[ChangedChannel], has_id=True)
# The body of the answer is not specified: any 2xx is success, unless the body is a refusal.
DELETE: Endpoint[Record] = Endpoint("channels.delete", "DELETE", IDEMPOTENT, Lane.READ, None, has_id=True)

logger: logging.Logger = logging.getLogger("momopay")


class Channels(Resource[BackendT]):
    """Payment channels (service page, "Payment channel"). All calls but `create` are retried as needed.

    If `update` or `delete` raises an error with ``may_have_executed``, it may have taken effect: read the channel.
    """

    @operation
    async def list(self) -> builtins.list[PaymentChannel]:
        """Read all channels of the account: the default first, then newest to oldest, without deleted ones.

        See the service page, "GET /payment-wallet/channels".
        """
        return (await Call(self._session, LIST, "/payment-wallet/channels").run()).items

    @operation
    async def get(self, channel_id: ChannelRef) -> PaymentChannel:
        """Read one channel, given its id or its record. See the service page, "GET /payment-wallet/channels/{id}".

        Raises:
            ChannelNotFoundError: The channel is unknown, another account's, or deleted.
        """
        return await Call(self._session, GET, channel_path(channel_id)).run()

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
        """Register a shortcode. Sent at most once. See the service page, "POST /payment-wallet/channels".

        Args:
            name: A label for people.
            type: ``PAYBILL``, ``TILL_NUMBER`` or ``SEND_MONEY``; it cannot be changed later.
            shortcode: The Paybill or Till number; it cannot be changed later.
            account_number: Required for ``PAYBILL``.
            is_default: Whether STK requests without a channel use this one, instead of the previous default.

        Raises:
            OutcomeUnknownError: The channel may exist: list the channels before you create it again.
        """
        request = ChannelRequest.checked(
            name=name, type=type, shortcode=shortcode, account_number=account_number, is_default=is_default
        )
        body, details = request.to_json(), PaymentDetails(reference=request.name)
        answer = await Call(self._session, CREATE, "/payment-wallet/channels", body=body, details=details).run()
        return answer.completed({}, {name: getattr(request, name) for name in request.model_fields_set})

    @operation
    async def update(
        self,
        channel_id: ChannelRef,
        *,
        name: str | UNSET = UNSET,
        account_number: str | UNSET | None = UNSET,
        is_default: bool | UNSET = UNSET,
    ) -> PaymentChannel:
        """Change the given fields of a channel and return it. None is sent as null.

        Active transactions are not affected. See the service page, "PATCH /payment-wallet/channels/{id}".

        Args:
            channel_id: The channel's id, or the channel.
            name: The new label.
            account_number: The new account number.
            is_default: Whether it becomes the default.

        Returns:
            The channel. What the answer to the change lacks comes from the arguments, or from a read. If that fails
            too, the change has still happened: then ``type`` and ``shortcode`` are empty, with a WARNING.

        Raises:
            APIError: The code for an unknown channel is not specified.
        """
        changes = ChannelChanges.checked(
            channel_id=channel_id, name=name, account_number=account_number, is_default=is_default
        )
        path = channel_path(changes.channel_id)
        changed = {name: getattr(changes, name) for name in changes.model_fields_set - {"channel_id"}}
        answer = await Call(self._session, UPDATE, path, body=changes.to_json()).run()
        known = dict(channel_id) if isinstance(channel_id, PaymentChannel) else {"id": changes.channel_id}
        try:
            return answer.completed(known, changed)
        except ValidationError:  # of what was given as an id, more must be read
            return answer.completed({**known, **await self._read_or_log(changes.channel_id)}, changed)

    async def _read_or_log(self, channel_id: str) -> dict[str, object]:
        """Return the fields of a channel that was changed. After the change, no failure of a read is an error."""
        try:
            return dict(await Call(self._session, GET, channel_path(channel_id)).run())
        except MomoPayError as error:
            logger.warning("channels.update: the channel was changed, and could not be read after that: %s", error)
            return {"type": "", "shortcode": ""}

    @operation
    async def delete(self, channel_id: ChannelRef) -> None:
        """Delete a channel. See the service page, "DELETE /payment-wallet/channels/{id}".

        Raises:
            ChannelInUseError: The channel has transactions or customers, so it cannot be deleted.
            ChannelNotFoundError: The channel is unknown, another account's, or already deleted.
        """
        try:
            await Call(self._session, DELETE, channel_path(channel_id)).run()
        except APIError as error:
            # "Not found" after an attempt whose outcome is unknown is a success: that attempt deleted it.
            if not (error.status_code == HTTPStatus.NOT_FOUND and error.may_have_executed):
                raise
