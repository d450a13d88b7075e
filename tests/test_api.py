"""The Python face: simkit.run and simkit.compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import TINY, plain

import simkit
from simkit import api
from simkit.model import Deadlock, UsageError

STALL = [{"at": "0s", "what": {"pool": "gpu", "starts": "nothing"}}]


def tiny(**changes: Any) -> dict[str, Any]:
    return {**plain(TINY), **changes}


def test_a_run_is_its_log_and_tables_of_it() -> None:
    result = simkit.run(tiny(), policy="fifo")
    assert len(result.runs) == 80  # 20 people, 60 of the batch
    assert len(result.tasks) == 80  # of one task each
    assert set(result.events["event"]) >= {"RUN_SUBMITTED", "RUN_ADMITTED"}
    assert len(result.series) > 1
    assert result.summary().metrics["offered"] == 80
    assert "people-0" in result.explain("people-0")


def test_the_policy_is_the_last_one_unless_said() -> None:
    assert simkit.run(tiny()).log.header["policy"] == "strict_priority"
    assert simkit.run(tiny(), policy="drr").log.header["policy"] == "drr"


def test_seed_and_replication_choose_the_demand() -> None:
    digests = [simkit.run(tiny(), seed=seed, replication=number).log.header["trace_digest"] for seed, number in ((3, 0), (3, 0), (3, 1), (4, 0))]  # fmt: skip
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_replication_k_alone_is_replication_k_of_n() -> None:
    comparison = simkit.compare(tiny(), jobs=1)
    alone = simkit.run(tiny(), policy="fifo", replication=2).summary().metrics
    assert comparison.values("fifo", "latency_s.p95")[2] == alone["latency_s.p95"]


def test_names_from_documents_stay_text_in_a_notebook() -> None:
    html = simkit.run(tiny(name="<script>alert(1)</script>"))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_a_deadlock_is_raised() -> None:
    with pytest.raises(Deadlock, match="'strict_priority'"):
        simkit.run(tiny(faults=STALL))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed: found -1"),
        ({"replications": 0}, "replications: found 0"),
        ({"policies": []}, "no policy to run"),
        ({"policies": ["fifo", "fifo"]}, "'fifo' is there twice"),
        ({"baseline": "edf"}, "no policy 'edf'"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simkit.compare(tiny(), jobs=1, **options)


def test_a_class_of_ones_own_is_a_policy_in_this_process_and_in_others() -> None:
    @simkit.mechanism("newest_first")
    @dataclass(eq=False)
    class NewestFirst(simkit.RankOrder):
        """The task that became ready last goes first."""

        def rank(self, task: simkit.Task, now_s: float) -> float:
            return -now_s

    found = [simkit.compare(tiny(), policies=[NewestFirst, "fifo"], replications=2, jobs=jobs) for jobs in (1, 2)]
    assert found[0].policies == ["newest_first", "fifo"]
    assert found[0].to_json() == found[1].to_json()
    assert found[0].metric("newest_first", "latency_s.max").mean > found[0].metric("fifo", "latency_s.max").mean


def test_a_policy_may_be_plain_data() -> None:
    comparison = simkit.compare(tiny(), policies=["fifo", {"name": "last", "order": "lifo"}], replications=2, jobs=1)
    assert comparison.policies == ["fifo", "last"]


def test_controls_go_when_what_they_must_fail_goes() -> None:
    scenario = simkit.load_scenario(tiny())
    assert api.choose(scenario, ["fifo"]).control == ()
    assert api.choose(scenario, ["fifo", "strict_priority"]).control == ("fifo",)


def test_precision_says_whether_it_was_reached() -> None:
    few = simkit.compare(tiny(), replications=2, jobs=1, precision=1e-9)
    assert few.replications == 20  # ten times as many and no more
    assert few.details["precision"] == {"wanted": 1e-9, "reached": False}
    enough = simkit.compare(tiny(), replications=3, jobs=1, precision=0.9)
    assert enough.details["precision"]["reached"]
    primary = enough.metric("fifo", enough.primary)
    assert primary.half_width <= 0.9 * primary.mean


def test_more_replications_keep_the_first_ones() -> None:
    few, more = (simkit.compare(tiny(), replications=count, jobs=1) for count in (2, 4))
    for metric in ("latency_s.p95", "goodput_per_s"):
        assert few.values("fifo", metric) == more.values("fifo", metric)[:2]
    assert not math.isnan(few.values("fifo", "latency_s.p95")[0])
