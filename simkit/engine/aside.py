"""Parking for orders that know only push, pop and len."""

from __future__ import annotations

from collections import deque

from simkit.mechanisms.base import Context, Order


class SetAside(Order):
    """Wraps an order that cannot park. Rows of a held group that come up are kept aside in the order in which they came up; when
    the group is woken, its first row is offered next, then one after the other as they start.

    A set-aside row has had its turn in the wrapped order, so it goes before the rows still in there. O(1) per row and hold.
    """

    parks = True

    def __init__(self, order: Order) -> None:
        self.inner = order
        self._aside: dict[int, deque[int]] = {}
        self._blocked: set[int] = set()
        self._offered: deque[int] = deque()  # groups with rows aside that may go
        self._head = -1

    def bind(self, context: Context) -> None:
        self._group = context.rows.group
        self.inner.bind(context)

    def push(self, row: int, now_ns: int) -> None:
        self.inner.push(row, now_ns)

    def __len__(self) -> int:
        held = 0
        for rows in self._aside.values():
            held += len(rows)
        return len(self.inner) + held + (self._head >= 0)

    def head(self, now_ns: int) -> int:
        while self._head < 0:
            row = self._next(now_ns)
            if row < 0:
                return -1
            if self._group[row] in self._blocked:
                self._aside.setdefault(self._group[row], deque()).append(row)
            else:
                self._head = row
        return self._head

    def _next(self, now_ns: int) -> int:
        while self._offered:
            rows = self._aside.get(self._offered[0])
            if rows and self._offered[0] not in self._blocked:
                return rows.popleft()
            self._offered.popleft()
        return self.inner.pop(now_ns)

    def take(self, now_ns: int) -> int:
        row = self.head(now_ns)
        self._head = -1
        return row

    pop = take

    def block(self, group: int) -> None:
        self._blocked.add(group)
        if self._head >= 0 and self._group[self._head] == group:
            self._aside.setdefault(group, deque()).appendleft(self._head)
            self._head = -1

    def unblock(self, group: int) -> None:
        self._blocked.discard(group)
        if self._aside.get(group):
            self._offered.append(group)

    def remove(self, row: int) -> None:
        self.inner.remove(row)

    def finished(self, row: int, now_ns: int) -> None:
        self.inner.finished(row, now_ns)
