"""The records of SPEC.md as they stand on the wire."""

from datetime import datetime

from momopay.sandbox._accounts import Account, Channel
from momopay.sandbox._clock import iso
from momopay.sandbox._money import number
from momopay.sandbox._outcomes import Status
from momopay.sandbox._transactions import Transaction

Data = dict[str, object]

PROVIDER = "MOMO"
CURRENCY = "KES"
_FEE_SHOWN = frozenset({Status.PENDING, Status.SUCCESS})


def fee_shown(transaction: Transaction) -> int | float:
    """The fee by status: actual while PENDING and on SUCCESS, otherwise 0."""
    return number(transaction.fee) if transaction.status in _FEE_SHOWN else 0


def stk_initiated(transaction: Transaction) -> Data:
    """The STK initiation response, as of the initiation (a top-up is replayed later); also the top-up's."""
    return {
        "transactionId": transaction.id,
        "tenantId": transaction.tenant_id,
        "channelId": transaction.channel_id,
        "type": "STK",
        "status": Status.PENDING.value,
        "amount": number(transaction.amount),
        "currency": CURRENCY,
        "phone": transaction.phone,
        "accountReference": transaction.reference,
        "transactionDesc": transaction.description,
        "providerRequestId": transaction.provider_request_id,
        "providerCheckoutId": transaction.provider_checkout_id,
        "transactionFee": number(transaction.fee),
        "resultCode": "0",
        "resultDescription": "Request accepted for processing",
        "createdAt": iso(transaction.created_at),
        "updatedAt": iso(transaction.created_at),
    }


def payout_initiated(transaction: Transaction) -> Data:
    """The B2C initiation response."""
    return {
        "transactionId": transaction.id,
        "tenantId": transaction.tenant_id,
        "channelId": transaction.channel_id,
        "type": "B2C",
        "status": transaction.status.value,
        "amount": number(transaction.amount),
        "currency": CURRENCY,
        "phone": transaction.phone,
        "reference": transaction.reference,
        "description": transaction.description,
        "transactionFee": number(transaction.fee),
        "resultDescription": "Payout queued for processing",
        "createdAt": iso(transaction.created_at),
        "updatedAt": iso(transaction.updated_at),
    }


def read_camel(transaction: Transaction) -> Data:
    """The single read, in camelCase: SPEC.md lists no fee among its fields."""
    return {
        "transactionId": transaction.id,
        "tenantId": transaction.tenant_id,
        "type": transaction.kind.value,
        "status": transaction.status.value,
        "amount": number(transaction.amount),
        "currency": CURRENCY,
        "phone": transaction.phone,
        "channelId": transaction.channel_id,
        "accountReference": transaction.reference,
        "transactionDesc": transaction.description,
        "provider": PROVIDER,
        "providerRequestId": transaction.provider_request_id,
        "providerCheckoutId": transaction.provider_checkout_id,
        "resultCode": transaction.result_code,
        "resultDesc": transaction.result_desc,
        "createdAt": iso(transaction.created_at),
        "updatedAt": iso(transaction.updated_at),
    }


def read_snake(transaction: Transaction) -> Data:
    """The single read, in snake_case."""
    return {
        "transaction_id": transaction.id,
        "type": transaction.kind.value,
        "status": transaction.status.value,
        "amount": number(transaction.amount),
        "currency": CURRENCY,
        "phone_number": transaction.phone,
        "external_reference": transaction.reference or None,
        "transaction_fee": fee_shown(transaction),
        "provider_request_id": transaction.provider_request_id,
        "provider_checkout_id": transaction.provider_checkout_id,
        "result_code": transaction.result_code,
        "result_desc": transaction.result_desc,
        "created_at": iso(transaction.created_at),
        "updated_at": iso(transaction.updated_at),
    }


def list_item(transaction: Transaction, *, fee_field: str) -> Data:
    """A list item; the two styles differ only in the name of the fee."""
    return {
        "transactionId": transaction.id,
        "type": transaction.kind.value,
        "status": transaction.status.value,
        "amount": number(transaction.amount),
        "currency": CURRENCY,
        "phone": transaction.phone,
        "accountReference": transaction.reference,
        fee_field: fee_shown(transaction),
        "createdAt": iso(transaction.created_at),
        "updatedAt": iso(transaction.updated_at),
    }


def callback_payload(transaction: Transaction, *, event_type: str, status: Status) -> Data:
    """The body of a callback."""
    return {
        "event": "transaction.updated",
        "event_type": event_type,
        "transaction": {
            "id": transaction.id,
            "tenant_id": transaction.tenant_id,
            "type": transaction.kind.value,
            "status": status.value,
            "amount": number(transaction.amount),
            "currency": CURRENCY,
            "phone_number": transaction.phone,
            "external_reference": transaction.reference,
            "provider": PROVIDER,
            "provider_request_id": transaction.provider_request_id,
            "provider_checkout_id": transaction.provider_checkout_id,
            "momo_receipt": transaction.receipt,
            "transaction_fee": fee_shown(transaction),
            "result_code": transaction.result_code,
            "result_desc": transaction.result_desc,
            "created_at": iso(transaction.created_at),
            "updated_at": iso(transaction.updated_at),
        },
    }


def channel_record(channel: Channel, tenant_id: str) -> Data:
    """A payment channel."""
    return {
        "id": channel.id,
        "tenantId": tenant_id,
        "category": channel.category,
        "type": channel.type,
        "shortcode": channel.shortcode,
        "name": channel.name,
        "accountNumber": channel.account_number,
        "isDefault": channel.is_default,
        "createdAt": iso(channel.created_at),
    }


def balance_record(account: Account, wallet_id: str, updated_at: datetime) -> Data:
    """The service wallet's balance; nothing is ever pending here, so both balances are the same."""
    return {
        "walletId": wallet_id,
        "tenantId": account.tenant_id,
        "currency": CURRENCY,
        "availableBalance": number(account.service_balance),
        "ledgerBalance": number(account.service_balance),
        "updatedAt": iso(updated_at),
    }
