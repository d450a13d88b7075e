"""Replications in processes: equal results in any mode, dead workers, poison, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_scenarios import two_tenants

from simkit.model import Deadlock, UsageError
from simkit.sweep import Failed, WorkLost, replicate, run_all
from simkit.sweep.replicate import Item, plan

forking = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # 3.12 on: the test process has threads


def square(number: int) -> int:
    return number * number


# --- the plan ----------------------------------------------------------------------------------------------


def test_work_is_whole_replications_and_the_rest_split_by_policy():
    assert plan([0, 1, 2], 2, 2) == [Item(0, (0, 1)), Item(1, (0, 1)), Item(2, (0,)), Item(2, (1,))]
    assert plan([4], 3, 2) == [Item(4, (0,)), Item(4, (1,)), Item(4, (2,))]
    assert plan([0, 1, 2, 3], 5, 2) == [Item(number, (0, 1, 2, 3, 4)) for number in range(4)]


@pytest.mark.parametrize(("numbers", "policies", "jobs"), [(10, 5, 2), (7, 3, 4), (1, 1, 8), (3, 4, 1), (5, 2, 3)])
def test_every_policy_of_every_replication_is_in_the_plan_once(numbers, policies, jobs):
    pairs = [(item.number, place) for item in plan(range(numbers), policies, jobs) for place in item.places]
    assert sorted(pairs) == [(number, place) for number in range(numbers) for place in range(policies)]


# --- equal results -----------------------------------------------------------------------------------------


def numbers_of(replications):
    """Everything that a comparison reads of them, as text that shows every bit of a float."""
    return [
        (item.number, item.trace_digest, item.digests,
         repr([(name, summary.metrics, summary.by_class, summary.by_tenant, summary.pools) for name, summary in item.summaries.items()]))
        for item in replications
    ]  # fmt: skip


@pytest.fixture(scope="module")
def serial():
    return numbers_of(replicate(two_tenants(), range(3), jobs=1))


@forking
@pytest.mark.parametrize("kind", ["fork", "spawn", "loky"])
def test_processes_give_what_a_serial_run_gives(serial, kind):
    assert numbers_of(replicate(two_tenants(), range(3), jobs=2, kind=kind)) == serial


def test_any_executor_gives_what_a_serial_run_gives(serial):
    assert numbers_of(replicate(two_tenants(), range(3), jobs=2, kind=ThreadPoolExecutor)) == serial


def test_a_replication_alone_equals_itself_among_others(serial):
    assert numbers_of(replicate(two_tenants(), [2], jobs=1)) == serial[2:]


def test_the_order_in_which_replications_are_asked_for_does_not_matter(serial):
    assert numbers_of(replicate(two_tenants(), [2, 0, 1], jobs=1)) == serial


def test_logs_are_kept_of_the_first_replications_only():
    done = replicate(two_tenants(), range(2), jobs=1, keep_logs_of=1)
    assert [list(item.logs) for item in done] == [["fifo", "strict_priority", "weighted_fair"], []]


def test_progress_counts_simulations_up_to_all_of_them():
    seen = []
    replicate(two_tenants(), range(3), jobs=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(3, 9), (6, 9), (9, 9)]


def test_a_policy_from_a_file_of_ones_own_reaches_the_workers(tmp_path):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            from simkit.mechanisms import RankOrder, mechanism

            @mechanism("newest")
            @dataclass
            class Newest(RankOrder):
                def rank(self, task, now):
                    return -task.arrival_s
            """
        )
    )
    (tmp_path / "newest.yaml").write_text("name: newest\nversion: 1\norder: {mine.py@Newest: {}}\n")
    from simkit.policy import load_policy

    policy = load_policy(tmp_path / "newest.yaml", allow_code=True)
    scenario = two_tenants().with_policies([policy])
    own = numbers_of(replicate(scenario, range(2), jobs=1))
    for kind in ("loky", "spawn"):
        assert numbers_of(replicate(scenario, range(2), jobs=2, kind=kind)) == own


# --- workers that die --------------------------------------------------------------------------------------


class DiesOnce:
    """Kills its process at one key, the first time only."""

    def __init__(self, folder: Path, key: int) -> None:
        self.folder, self.key = folder, key

    def __call__(self, number: int) -> int:
        if number == self.key and not (self.folder / "died").exists():
            (self.folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return square(number)


class Poison:
    """Kills its process at one key, always."""

    def __init__(self, key: int) -> None:
        self.key = key

    def __call__(self, number: int) -> int:
        if number == self.key:
            os.kill(os.getpid(), signal.SIGKILL)
        return square(number)


@forking
@pytest.mark.parametrize("kind", ["loky", "fork"])
def test_a_killed_worker_costs_a_retry_and_no_result(tmp_path, kind):
    found = dict(run_all(DiesOnce(tmp_path, 3), range(8), jobs=2, kind=kind))
    assert found == {number: square(number) for number in range(8)}
    assert (tmp_path / "died").exists()


@forking
@pytest.mark.parametrize("kind", ["loky", "fork"])
def test_work_that_always_kills_its_worker_is_given_up_and_nothing_else(kind):
    found = dict(run_all(Poison(3), range(8), jobs=2, kind=kind))
    lost = found.pop(3)
    assert isinstance(lost, Failed)
    assert "its worker process died" in lost.error
    assert found == {number: square(number) for number in range(8) if number != 3}


@forking
def test_replications_that_cannot_be_finished_are_named_and_the_others_kept(monkeypatch):
    from simkit.sweep import replicate as module

    def dying(scenario, policy, trace, *, replication, **rest):
        if replication == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(scenario, policy, trace, replication=replication, **rest)

    plain, home = sys.modules["simkit.sweep.replicate"].simulate, sys.modules["simkit.sweep.replicate"]
    monkeypatch.setattr(home, "simulate", dying)  # forked workers inherit it
    finished = []
    with pytest.raises(WorkLost, match="not finished: replications 1 of 4") as caught:
        replicate(two_tenants(), range(4), jobs=2, kind="fork", finished=finished)
    assert [item.number for item in caught.value.finished] == [0, 2, 3]
    assert [item.number for item in finished] == [0, 2, 3]
    assert module is not None


def fails_at_five(number: int) -> int:
    if number == 5:
        raise UsageError("five is not a number here")
    return square(number)


@forking
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_the_work_itself_is_raised_and_what_came_before_is_kept(jobs):
    found = {}

    def collect():
        for key, result in run_all(fails_at_five, range(12), jobs=jobs, kind="fork"):
            found[key] = result

    with pytest.raises(UsageError, match="five is not a number"):
        collect()
    assert {0, 1} <= set(found) <= set(range(12)) - {5}


def test_an_error_says_which_simulation_it_was(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(sys.modules["simkit.sweep.replicate"], "simulate", broken)
    with pytest.raises(ZeroDivisionError) as caught:
        replicate(two_tenants(), [3], jobs=1)
    assert caught.value.__notes__ == ["scenario two_tenants, policy fifo, seed 11, replication 3"]


def test_a_simulation_that_got_stuck_is_named(monkeypatch):
    home = sys.modules["simkit.sweep.replicate"]
    plain = home.simulate

    def stuck(*args, **rest):
        log = plain(*args, **rest)
        log.header["status"], log.header["stuck_in"] = "deadlock", ["gpu"]
        return log

    monkeypatch.setattr(home, "simulate", stuck)
    finished = []
    with pytest.raises(Deadlock, match="under policy 'fifo', replication 0, work waits in gpu"):
        replicate(two_tenants(), range(2), jobs=1, finished=finished)
    assert len(finished) == 2


def threads_of_worker(_: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


@forking
@pytest.mark.parametrize("kind", ["loky", "fork", "spawn"])
def test_workers_compute_with_one_thread_and_the_parent_is_left_alone(kind, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert {result for _, result in run_all(threads_of_worker, range(3), jobs=2, kind=kind)} == {"1"}
    assert "OMP_NUM_THREADS" not in os.environ


def test_an_unknown_kind_of_executor_is_refused():
    with pytest.raises(ValueError, match="unknown executor 'ray'"):
        list(run_all(square, range(2), jobs=2, kind="ray"))


# --- interrupts and dead parents ---------------------------------------------------------------------------

SLOW = """
import os, sys, time
from simkit.sweep import run_all

class Slow:
    def __call__(self, number):
        open(os.path.join({folder!r}, f"worker-{{os.getpid()}}"), "w").close()
        time.sleep(0 if number < 2 else 60)
        return number

if __name__ == "__main__":
    finished = []
    try:
        for key, _ in run_all(Slow(), range(8), jobs=2, kind={kind!r}):
            finished.append(key)
            if len(finished) == 2:
                print("two are done", flush=True)
    except KeyboardInterrupt:
        print("kept", sorted(finished), flush=True)
        sys.exit(130)
"""


def start_slow(tmp_path: Path, kind: str) -> subprocess.Popen[str]:
    script = tmp_path / "slow.py"
    script.write_text(SLOW.format(folder=str(tmp_path), kind=kind))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    if first != "two are done\n":
        process.kill()
        raise AssertionError(process.communicate())
    return process


def workers(tmp_path: Path) -> list[int]:
    return [int(path.name.removeprefix("worker-")) for path in tmp_path.glob("worker-*")]


def gone(process: int, within_s: float = 30) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


@linux
@pytest.mark.parametrize("kind", ["loky", "fork"])
def test_ctrl_c_ends_quietly_keeps_what_is_finished_and_leaves_no_worker(tmp_path, kind):
    process = start_slow(tmp_path, kind)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to parent and workers
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, "kept [0, 1]\n", "")
    assert workers(tmp_path)
    assert all(gone(worker) for worker in workers(tmp_path))


@linux
@pytest.mark.parametrize("kind", ["loky", "fork"])
def test_workers_leave_when_their_parent_was_killed(tmp_path, kind):
    process = start_slow(tmp_path, kind)
    process.kill()
    process.communicate(timeout=60)
    assert workers(tmp_path)
    assert all(gone(worker) for worker in workers(tmp_path))


@forking
def test_leaving_early_stops_the_workers(tmp_path):
    class Sleepy:
        def __call__(self, number: int) -> int:
            (tmp_path / f"worker-{os.getpid()}").touch()
            time.sleep(0 if number == 0 else 60)
            return number

    work = run_all(Sleepy(), range(4), jobs=2, kind="fork")
    assert next(work) == (0, 0)
    work.close()
    assert all(gone(worker) for worker in workers(tmp_path))
