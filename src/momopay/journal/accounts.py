"""Which account of the service a namespace of the journal belongs to.

A namespace is bound at its first use to the mode of the key, the host and, once an answer has shown it, the tenant.

Thread safety: every thread may call everything here. What was checked is kept in memory; it never becomes wrong, as a
namespace that is bound stays so.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import and_, bindparam, select, update

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import ForkSafeDatabase
from momopay.journal.identity import KeyIdentity
from momopay.journal.schema import accounts, insert_new, keys, update_one

_ACCOUNT = select(accounts).where(accounts.c.account == bindparam("namespace"))
_IS_KEY = and_(keys.c.account == bindparam("namespace"), keys.c.key == bindparam("key_hash"))
_KEY = select(keys.c.tenant_id).where(_IS_KEY)
_REPLACE_TENANT = update(keys).where(_IS_KEY).values(tenant_id=bindparam("new_tenant"))
_BIND_TENANT = (
    update(accounts)
    .where(accounts.c.account == bindparam("namespace"), accounts.c.tenant_id.is_(None))
    .values(tenant_id=bindparam("new_tenant"))
)


class Accounts:
    """What one namespace of the journal is bound to."""

    def __init__(self, database: ForkSafeDatabase, account: str) -> None:
        self._database = database
        self._account = account
        # Changes of a dict are atomic, and None means that the tenant of the key is not known yet.
        self._checked: dict[KeyIdentity, str | None] = {}

    def check(self, identity: KeyIdentity) -> None:
        """Bind the namespace at its first use; raise ConfigurationError if the key belongs to another account.

        Raises:
            ConfigurationError: It is bound to another mode, host or tenant. Nothing was sent.
            JournalError: The database failed.
        """
        if identity in self._checked:
            return
        with self._database.connection() as connection:
            new = {"account": self._account, "mode": identity.mode, "host": identity.host, "tenant_id": None}
            insert_new(connection, accounts, {**new, "bound_at": _now()})
            bound = connection.execute(_ACCOUNT, {"namespace": self._account}).mappings().one_or_none()
            tenant = connection.scalar(_KEY, {"namespace": self._account, "key_hash": identity.key})
        if bound is None:
            raise JournalError("the journal's database neither took the account nor shows one")
        for what, own in (("mode", identity.mode), ("host", identity.host)):
            if bound[what] != own:
                raise self._refused(f"the {what} {bound[what]!r}", f"{own!r}")
        if tenant is not None and bound["tenant_id"] not in {None, tenant}:
            raise self._refused(f"tenant {bound['tenant_id']!r}", f"a key of tenant {tenant!r}")
        self._checked[identity] = tenant

    def needs_tenant(self, identity: KeyIdentity) -> bool:
        """Return whether the namespace's tenant is known and that of a checked key is not."""
        if self._checked.get(identity) is not None:
            return False
        with self._database.connection() as connection:
            bound = connection.execute(_ACCOUNT, {"namespace": self._account}).mappings().one_or_none()
        return bound is not None and bound["tenant_id"] is not None

    def learn(self, identity: KeyIdentity, tenant_id: str) -> bool:
        """Record the tenant that an answer showed for a key, and return whether it is the namespace's.

        If it is another one, the next `check` of this key raises, in every process; other keys go on.

        Raises:
            JournalError: The database failed.
        """
        if self._checked.get(identity) == tenant_id:
            return True
        with self._database.connection() as connection:
            update_one(connection, _BIND_TENANT, {"namespace": self._account, "new_tenant": tenant_id})
            bound = connection.execute(_ACCOUNT, {"namespace": self._account}).mappings().one_or_none()
            known = {"account": self._account, "key": identity.key, "tenant_id": tenant_id}
            if not insert_new(connection, keys, known):
                changed = {"namespace": self._account, "key_hash": identity.key, "new_tenant": tenant_id}
                connection.execute(_REPLACE_TENANT, changed)
        if bound is not None and bound["tenant_id"] == tenant_id:
            self._checked[identity] = tenant_id
            return True
        self._checked.pop(identity, None)
        return False

    def _refused(self, bound: str, given: str) -> ConfigurationError:
        return ConfigurationError(
            f"the journal's account {self._account!r} belongs to {bound}, not to {given}; nothing was sent."
            " Give each account of the service a journal of its own, or a name: Journal(url, account=...)"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat()
