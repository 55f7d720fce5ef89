"""Rules of payment channels: order, the one default, changes, deletion, and which one STK is routed to."""

from collections.abc import Collection
from datetime import datetime

from momopay.sandbox._accounts import Account, Channel
from momopay.sandbox._bodies import ChannelChangesBody, NewChannelBody, parse_json, read_body
from momopay.sandbox._refusals import Refusal, invalid_field


def in_list_order(account: Account) -> list[Channel]:
    """Return the default channel first, then newest to oldest."""
    newest_first = list(account.live_channels())[::-1]
    return sorted(newest_first, key=lambda channel: not channel.is_default)


def find(account: Account, channel_id: str, *, code: str = "CHANNEL_NOT_FOUND", status: int = 404) -> Channel:
    """Return the live channel with that id."""
    for channel in account.live_channels():
        if channel.id == channel_id:
            return channel
    raise Refusal(code, "No such payment channel on this account", status=status)


def create(account: Account, body: NewChannelBody, now: datetime) -> Channel:
    """Add a channel and return it."""
    channel = Channel(
        type=body.type,
        shortcode=body.shortcode,
        name=body.name,
        account_number=_account_number(body.type, body.account_number),
        created_at=now,
    )
    account.channels.append(channel)
    if body.is_default:
        make_default(account, channel)
    return channel


def change(account: Account, channel: Channel, raw: bytes) -> None:
    """Change the fields that were sent in a body, and only those."""
    body = read_body(ChannelChangesBody, raw)
    sent = body.model_fields_set
    if account.switches.immutable_channel_fields == "refuse":
        fields = parse_json(raw)
        for name in ("type", "shortcode"):
            # The same value again is no change, and so no reason to refuse.
            if fields.get(name, getattr(channel, name)) != getattr(channel, name):
                raise invalid_field(name, "cannot be changed after creation")
    if "account_number" in sent:
        # 409: the body is right, and only does not fit this channel.
        channel.account_number = _account_number(channel.type, body.account_number, status=409)
    if "name" in sent:
        channel.name = body.name
    if body.is_default:
        make_default(account, channel)
    elif "is_default" in sent:
        channel.is_default = False


def make_default(account: Account, channel: Channel) -> None:
    """Move the default flag to this channel."""
    for other in account.channels:
        other.is_default = other is channel


def delete(channel: Channel, linked: Collection[str | None]) -> None:
    """Soft-delete a channel."""
    if channel.id in linked or channel.customers:
        raise Refusal("CHANNEL_IN_USE", "The channel has linked transactions or customers")
    # Kept, because the id must stay in use: transactions of the past name it.
    channel.deleted, channel.is_default = True, False


def select_for_stk(account: Account, channel_id: str | None, credential_id: str | None) -> Channel | None:
    """Return the channel of an STK request; None only where a credential profile has to do without one."""
    if channel_id is not None:
        return find(account, channel_id, status=400)
    channels = list(account.live_channels())
    # The default comes before the credential profile: the channel, where there is one, is the receiving party.
    for channel in channels:
        if channel.is_default:
            return channel
    if credential_id is not None:
        return None
    if channels:
        raise Refusal("NO_DEFAULT_CHANNEL", "The account has channels but none is the default")
    raise Refusal("NO_PAYMENT_CHANNELS", "The account has no payment channels")


def _account_number(channel_type: str, account_number: str | None, status: int = 400) -> str | None:
    if channel_type == "PAYBILL" and not account_number:
        raise invalid_field("accountNumber", "is required for a PAYBILL channel", status)
    # TILL_NUMBER has none, so what was sent for it is dropped and never shown.
    return None if channel_type == "TILL_NUMBER" else account_number
