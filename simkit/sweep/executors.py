"""Run independent pieces of work in processes; lose none when a worker dies.

Any `concurrent.futures.Executor` will do. A pool that breaks fails all its unfinished work, guilty or not, so what it had is tried again, and
what was tried too often is run alone: then only the piece that kills its worker is given up.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

_MOST_TRIES = 3
_AHEAD = 2  # pieces handed out per worker at a time: a break fails few innocents


@dataclass(frozen=True, slots=True)
class Failed:
    """A piece of work that did not finish: the worker that ran it died every time."""

    key: Any
    error: str


def make_executor(kind: str, jobs: int) -> Executor:
    """An executor of `jobs` processes: "loky" (default; classes from notebooks work), "fork" or "spawn"."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if kind == "loky":
        from loky import ProcessPoolExecutor as LokyExecutor

        executor: Executor = LokyExecutor(max_workers=jobs, initializer=_watch_parent, initargs=(os.getpid(),))
        return executor
    if kind in ("fork", "spawn"):
        context = multiprocessing.get_context(kind)
        return ProcessPoolExecutor(jobs, mp_context=context, initializer=_watch_parent, initargs=(os.getpid(),))
    raise ValueError(f"unknown executor {kind!r}: expected loky, fork or spawn")


def _watch_parent(parent: int) -> None:
    """Leave when the process that wanted the work is gone (a killed parent stops no worker by itself). Ctrl-C is the parent's business."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == first_parent and _alive(parent):
            time.sleep(2)
        os._exit(1)

    first_parent = os.getppid()
    threading.Thread(target=watch, daemon=True).start()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def run_all(
    function: Callable[[Any], Any], keys: Sequence[Any], *, jobs: int, kind: str = "loky"
) -> Iterator[tuple[Any, Any]]:
    """Yield (key, result) as work finishes; (key, Failed) for what no worker survived. An error raised by `function` is raised here.

    With one job everything runs in this process, in order.
    """
    if jobs <= 1 or len(keys) <= 1:
        for key in keys:
            yield key, function(key)
        return
    todo, alone = list(keys), list[Any]()
    tries: Counter[Any] = Counter()
    while todo or alone:
        batch, single = (todo, False) if todo else ([alone.pop(0)], True)
        todo = []
        for key, result in _one_pool(function, batch, 1 if single else jobs, kind):
            if not isinstance(result, BrokenExecutor):
                yield key, result
                continue
            tries[key] += 1
            if single:
                yield key, Failed(key, f"its worker process died {tries[key]} times")
            elif tries[key] < _MOST_TRIES:
                todo.append(key)
            else:
                alone.append(key)


def _one_pool(function: Callable[[Any], Any], keys: Sequence[Any], jobs: int, kind: str) -> Iterator[tuple[Any, Any]]:
    """Results of one pool until it is done or broken; work that was not handed out counts as broken without having been tried."""
    executor = make_executor(kind, jobs)
    waiting = list(keys)[::-1]
    running: dict[Future[Any], Any] = {}
    finished = False
    try:
        while waiting or running:
            while waiting and len(running) < jobs * _AHEAD:
                key = waiting.pop()
                running[executor.submit(function, key)] = key
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                key = running.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    yield key, error
                elif error is not None:
                    raise error
                else:
                    yield key, future.result()
            if done and all(isinstance(future.exception(), BrokenExecutor) for future in done):
                break
        for key in [*running.values(), *reversed(waiting)]:
            yield key, BrokenExecutor("not finished")
        finished = True
    finally:
        if kind == "loky":
            executor.shutdown(wait=finished, kill_workers=not finished)  # type: ignore[call-arg]
        else:
            executor.shutdown(wait=finished, cancel_futures=True)
