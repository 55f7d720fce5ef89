"""Which account of the service a namespace of the journal belongs to.

A namespace is bound at its first use to the mode of the key, the host and, once an answer has shown it, the tenant.

Thread safety: every thread may call everything here. What was checked is kept in memory; it never becomes wrong, as a
namespace that is bound stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, select, update

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import Database
from momopay.journal.evidence import KeyIdentity
from momopay.journal.schema import accounts, insert_new, keys, update_one

_ACCOUNT: Final = select(accounts).where(accounts.c.account == bindparam("namespace"))
_IS_KEY: Final = and_(keys.c.account == bindparam("namespace"), keys.c.key == bindparam("key_hash"))
_KEY: Final = select(keys.c.tenant_id).where(_IS_KEY)
_REPLACE_TENANT: Final = update(keys).where(_IS_KEY).values(tenant_id=bindparam("new_tenant"))
_BIND_TENANT: Final = (
    update(accounts)
    .where(accounts.c.account == bindparam("namespace"), accounts.c.tenant_id.is_(None))
    .values(tenant_id=bindparam("new_tenant"))
)


class Accounts:
    """What one namespace of the journal is bound to."""

    def __init__(self, database: Database, account: str) -> None:
        self._database = database
        self._account = account
        # Changes of a dict are atomic. The value is the tenant; "" if a read did not show it, None if none was made.
        self._checked: dict[KeyIdentity, str | None] = {}

    def check(self, connection: Connection, identity: KeyIdentity) -> bool:
        """Bind the namespace at its first use, and return whether the tenant of the key is known.

        Raises:
            ConfigurationError: The key belongs to another mode, host or tenant. Nothing was sent.
        """
        if identity not in self._checked:
            new = {"account": self._account, "mode": identity.mode, "host": identity.host, "tenant_id": None}
            insert_new(connection, accounts, {**new, "bound_at": datetime.now(UTC).isoformat(), "handled_since": None})
            bound = self.bound(connection)
            if not bound:
                raise JournalError("the journal's database neither took the account nor shows one")
            for what, own in (("mode", identity.mode), ("host", identity.host)):
                if bound[what] != own:
                    raise self._refused(f"the {what} {bound[what]!r}", f"{own!r}")
            tenant = connection.scalar(_KEY, {"namespace": self._account, "key_hash": identity.key})
            if tenant is not None and bound["tenant_id"] not in {None, tenant}:
                raise self._refused(f"tenant {bound['tenant_id']!r}", f"a key of tenant {tenant!r}")
            self._checked[identity] = tenant
        return self._checked[identity] is not None

    def knows(self, identity: KeyIdentity, tenant_id: str | None) -> bool:
        """Return whether an answer says nothing new about the tenant of a key."""
        return not tenant_id or self._checked.get(identity) == tenant_id

    def bound(self, connection: Connection) -> Mapping[Any, Any]:
        """Return the row of the namespace; an empty mapping before its first use."""
        return connection.execute(_ACCOUNT, {"namespace": self._account}).mappings().one_or_none() or {}

    def learn(self, identity: KeyIdentity, tenant_id: str | None) -> bool:
        """Record the tenant that an answer showed for a key, and return whether it is the namespace's.

        If it is another one, the next `check` of this key raises, in every process; other keys go on. None is an answer
        that shows no tenant: it is not asked for again by this process.

        Raises:
            JournalError: The database failed.
        """
        if not tenant_id:
            self._checked[identity] = ""
            return True
        if self._checked.get(identity) == tenant_id:
            return True
        with self._database.connection() as connection:
            update_one(connection, _BIND_TENANT, {"namespace": self._account, "new_tenant": tenant_id})
            known = {"account": self._account, "key": identity.key, "tenant_id": tenant_id}
            if not insert_new(connection, keys, known):
                changed = {"namespace": self._account, "key_hash": identity.key, "new_tenant": tenant_id}
                connection.execute(_REPLACE_TENANT, changed)
            if self.bound(connection).get("tenant_id") == tenant_id:
                self._checked[identity] = tenant_id
                return True
        self._checked.pop(identity, None)
        return False

    def _refused(self, bound: str, given: str) -> ConfigurationError:
        return ConfigurationError(
            f"the journal's account {self._account!r} belongs to {bound}, not to {given}; nothing was sent."
            " Give each account of the service a journal of its own, or a name: Journal(url, account=...)"
        )
