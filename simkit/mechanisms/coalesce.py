"""Sharing of equal work."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from simkit.mechanisms.base import Coalesce, Context, mechanism


@mechanism("single_flight")
@dataclass(eq=False)
class SingleFlight(Coalesce):
    """One execution per key while it is queued or running; whoever asks for the same meanwhile gets its result, or its error.

    The key is the pool, the tier and the task's cache key, and the tenant too unless the task is marked public: work that depends on a
    tenant's state must not cross tenants, and an answer of a smaller model is not the one that was asked for. It is no cache: once the
    execution has ended the next task runs again. When the leading task leaves the queue unserved (its run was cancelled), the next one
    that shared its work takes its place.

    Parameters: `scope`: as_marked (default: public tasks are shared by all tenants) or tenant (never across tenants). O(1).
    Source: the single-flight suppression of Go's x/sync.
    """

    scope: Literal["as_marked", "tenant"] = "as_marked"

    def bind(self, context: Context) -> None:
        rows = context.rows
        self._pool, self._tier, self._key = rows.pool, rows.tier, rows.cache_key
        self._tenant, self._public = rows.tenant, rows.public

    def key(self, row: int) -> Hashable | None:
        key = self._key[row]
        if key < 0:
            return None
        shared = self._public[row] and self.scope == "as_marked"
        return (self._pool[row], self._tier[row], key, -1 if shared else self._tenant[row])
