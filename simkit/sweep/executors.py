"""Run independent pieces of work in processes; lose none when a worker dies.

Any `concurrent.futures.Executor` will do. A pool that breaks fails all its unfinished work, guilty or not, so what had been handed out is
tried again, and what was there at too many breaks is run alone: then only the piece that kills its worker is given up.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

_MOST_TRIES = 3
_AHEAD = (
    2  # pieces handed out per worker at a time: enough to keep it busy, few enough that a break fails few innocents
)
_WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1"
}  # one process per core: threads inside would only get in each other's way

Make = Callable[[int], Executor]
Key = Hashable


@dataclass(frozen=True, slots=True)
class Failed:
    """A piece of work that did not finish: the worker that ran it died every time, the last time with nothing else in its pool."""

    key: Any
    error: str


def maker(kind: str | Make) -> Make:
    """How to make an executor of n processes: "loky" (the default), "fork", "spawn", or a function of one's own (a cluster's, say).

    Raises ValueError for another name.
    """
    if callable(kind):
        return kind
    if kind == "loky":
        return _loky
    if kind in ("fork", "spawn"):
        return lambda jobs: ProcessPoolExecutor(
            jobs, mp_context=multiprocessing.get_context(kind), initializer=_watch_parent, initargs=(os.getpid(),)
        )
    raise ValueError(f"unknown executor {kind!r}: expected loky, fork or spawn")


def _loky(jobs: int) -> Executor:
    from loky import ProcessPoolExecutor as LokyExecutor

    executor: Executor = LokyExecutor(
        max_workers=jobs, initializer=_watch_parent, initargs=(os.getpid(),), env=_WORKER_ENVIRONMENT
    )
    return executor


def _watch_parent(parent: int) -> None:
    """Leave when the process that wanted the work is gone: a killed parent stops no worker by itself. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:  # who is left behind gets another one
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()


@contextmanager
def _starting_workers() -> Iterator[None]:
    """While workers start they inherit a blocked SIGINT (so that Ctrl-C makes no child print a traceback) and one thread each.

    A signal that comes meanwhile is delivered to this process right after.
    """
    before = {name: os.environ.get(name) for name in _WORKER_ENVIRONMENT}
    can_block = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else set()
    os.environ.update(_WORKER_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# --- shipping the function ---------------------------------------------------------------------------------

_unpacked: dict[str, Callable[[Any], Any]] = {}


def _pack(function: Callable[[Any], Any]) -> tuple[str, bytes]:
    """The function as bytes that any worker can read, with the classes of notebooks and of loaded policy files inside."""
    import cloudpickle  # type: ignore[import-untyped]

    own = [module for name, module in sorted(sys.modules.items()) if name.startswith("simkit_policy_")]
    for module in own:  # loaded from a file: no worker could import it by name
        cloudpickle.register_pickle_by_value(module)
    try:
        payload: bytes = cloudpickle.dumps(function)
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return hashlib.blake2b(payload, digest_size=16).hexdigest(), payload


def _call(digest: str, payload: bytes, key: Any) -> Any:
    """In the worker: unpack once, then call."""
    if digest not in _unpacked:
        import pickle

        _unpacked.clear()
        _unpacked[digest] = pickle.loads(payload)  # noqa: S301 - our own parent wrote it
    return _unpacked[digest](key)


# --- running -----------------------------------------------------------------------------------------------


def run_all(
    function: Callable[[Any], Any], keys: Sequence[Key], *, jobs: int, kind: str | Make = "loky"
) -> Iterator[tuple[Any, Any]]:
    """Yield (key, result) as work finishes, in any order; (key, Failed) for what no worker survived.

    Keys are distinct and hashable. An error raised by `function` is raised here, and whatever ends the iteration early (an error, Ctrl-C,
    the caller leaving) stops the workers at once. With one job, or one key, everything runs in this process, in order.
    """
    if jobs <= 1 or len(keys) <= 1:
        for key in keys:
            yield key, function(key)
        return
    make, (digest, payload) = maker(kind), _pack(function)
    tries: Counter[Key] = Counter()
    todo, alone = deque(keys), deque[Key]()
    while todo or alone:
        single = not todo
        batch = deque([alone.popleft()]) if single else todo
        ahead = 1 if tries else _AHEAD  # once something kills workers, have little beside it
        pool = _Pool(make, 1 if single else jobs, ahead)
        yield from pool.run(lambda key: (_call, digest, payload, key), batch)
        for key in pool.broken:
            tries[key] += 1
            if single:
                yield key, Failed(key, f"its worker process died {tries[key]} times")
            elif tries[key] < _MOST_TRIES:
                todo.append(key)
            else:
                alone.append(key)


class _Pool:
    """One executor's life, until the work is done or the executor breaks. `broken` is what had been handed out then."""

    def __init__(self, make: Make, jobs: int, ahead: int) -> None:
        self.make, self.jobs, self.ahead = make, jobs, ahead
        self.broken: list[Key] = []

    def run(self, call: Callable[[Key], tuple[Any, ...]], todo: deque[Key]) -> Iterator[tuple[Key, Any]]:
        """Take keys from `todo` and yield their results; what is never handed out stays in `todo`."""
        with _starting_workers():
            executor = self.make(self.jobs)
        running: dict[Future[Any], Key] = {}
        clean = False
        try:
            while (todo or running) and not self.broken:
                self._hand_out(executor, call, todo, running)
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    key = running.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenExecutor):
                        self.broken.append(key)
                    elif error is not None:
                        raise error
                    else:
                        yield key, future.result()
            for future, key in running.items():  # of a broken pool: what finished before the break counts
                if future.done() and future.exception() is None:
                    yield key, future.result()
                else:
                    self.broken.append(key)
            clean = not self.broken
        finally:
            _stop(executor, clean=clean)

    def _hand_out(
        self,
        executor: Executor,
        call: Callable[[Key], tuple[Any, ...]],
        todo: deque[Key],
        running: dict[Future[Any], Key],
    ) -> None:
        while todo and len(running) < self.jobs * self.ahead:
            try:
                with _starting_workers():
                    future = executor.submit(*call(todo[0]))
            except BrokenExecutor:
                if not running:  # broken before anything was handed out: the first in line is under suspicion
                    self.broken.append(todo.popleft())
                return
            running[future] = todo.popleft()


def _stop(executor: Executor, *, clean: bool) -> None:
    """Shut down; without waiting for work that nobody wants any more."""
    workers = [] if clean else [worker.pid for worker in (getattr(executor, "_processes", None) or {}).values()]
    for worker in workers:  # by hand: the executors' own ways differ, and the standard library's came with Python 3.14
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    executor.shutdown(wait=clean or bool(workers))
