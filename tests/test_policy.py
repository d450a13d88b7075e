"""Policy documents: strict, precise in their complaints, digested by what they mean, and data unless code is asked for."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from simkit.documents import DocumentErrors, load
from simkit.library import names
from simkit.mechanisms import Order, ParameterError, RankOrder, mechanism, registered
from simkit.mechanisms.base import forget
from simkit.mechanisms.order import Aging
from simkit.mechanisms.reserve import Reserve
from simkit.model import UsageError
from simkit.policy import MechanismSpec, Policy, all_mechanisms, diff, load_policy, parameters, policy_from
from simkit.units import Duration, Fraction


def read(text: str, **options: Any) -> Policy:
    return policy_from(load(textwrap.dedent(text), name="p.yaml"), **options)


def complaints(text: str, **options: Any) -> list[str]:
    with pytest.raises(DocumentErrors) as caught:
        read(text, **options)
    return [str(problem).removeprefix("p.yaml:") for problem in caught.value.problems]


# --- what is refused, and where ----------------------------------------------------------------------------

REFUSED = [
    # document
    ("version: 1", ["0: the key 'name' is missing [name]"]),
    ("name: true", ["1:7: found True, expected a name (write it in quotes if it looks like a number or a truth value) [name]"]),
    ("name:", ["1:1: found nothing, expected a value (or no key) [name]"]),
    ("name: x\nversion: 0", ["2:10: found 0, expected a whole number of 1 or more [version]"]),
    ("name: x\nversion: true", ["2:10: found True, expected a whole number of 1 or more [version]"]),
    ("name: x\nversion: 1.0", ["2:10: found 1.0, expected a whole number of 1 or more [version]"]),
    ("name: x\nabout: [y]", ["2:8: found ['y'], expected text [about]"]),
    ("name: x\nordr: fifo", ["2:1: unknown key 'ordr', did you mean 'order'? [ordr]"]),
    ("name: x\nname: y", ["2:1: the key 'name' is given twice (first at 1:1) [name]"]),
    ("name: x\npreempt: {lower_class: {}}", ["2:1: 'preempt' is not available in this version [preempt]"]),
    ("name: x\nroute: y", ["2:1: 'route' is not available in this version [route]"]),
    ("name: x\nautoscale: {}", ["2:1: 'autoscale' is not available in this version [autoscale]"]),
    # slots
    ("name: x\norder: [fifo]", ["2:8: found ['fifo'], expected the name of a mechanism or {name: {parameters}} [order]"]),
    ("name: x\norder: {fifo: {}, lifo: {}}", ["2:8: found 2 keys, expected the name of a mechanism or {name: {parameters}} [order]"]),
    ("name: x\norder: 5", ["2:8: found 5, expected the name of a mechanism or {name: {parameters}} [order]"]),
    ("name: x\norder: {fifo: 5}", ["2:15: found 5, expected the parameters of 'fifo' as a mapping [order.fifo]"]),
    ("name: x\norder: wieghted_fair", ["2:8: there is no order mechanism 'wieghted_fair', did you mean 'weighted_fair'? [order]"]),
    ("name: x\norder:\n  wieghted_fair: {}", ["3:3: there is no order mechanism 'wieghted_fair', did you mean 'weighted_fair'? [order.wieghted_fair]"]),
    ("name: x\nadmission: [fifo]", ["2:13: 'fifo' belongs under 'order', not under 'admission' [admission.0]"]),
    ("name: x\nadmission: {queue_limit: {max: 5}}", ["2:12: found {'queue_limit': {'max': 5}}, expected a list of admission mechanisms [admission]"]),
    ("name: x\nretry: [backoff]", ["2:8: found ['backoff'], expected the name of a mechanism or {name: {parameters}} [retry]"]),
    ("name: x\norder: {pools: {gpu: fifi}, defalt: fifo}", [
        "2:22: there is no order mechanism 'fifi', did you mean 'fifo'? [order.pools.gpu]",
        "2:29: unknown key 'defalt', did you mean 'default'? [order.defalt]",
    ]),
    ("name: x\norder: {pools: [gpu]}", ["2:16: found ['gpu'], expected a mapping of pools to orders [order.pools]"]),
    # parameters
    ("name: x\norder: {fifo: {depth: 3}}", ["2:16: fifo has no parameter 'depth' (it has none) [order.fifo.depth]"]),
    ("name: x\norder: {aging: {rat: 1/min}}", ["2:17: aging has no parameter 'rat', did you mean 'rate'? [order.aging.rat]"]),
    ("name: x\norder: {aging: {rate: 60}}", ["2:23: found 60, expected a rate such as 10/s, 60/min or 2/h [order.aging.rate]"]),
    ("name: x\norder: {aging: {rate: }}", ["2:17: found nothing, expected a value (or no key) [order.aging.rate]"]),
    ("name: x\norder: {weighted_fair: {weights: {a: 0}}}", ["2:38: weighted_fair: weights: a: found 0.0, a weight must be above 0 [order.weighted_fair.weights.a]"]),
    ("name: x\norder: {weighted_fair: {weights: {a: true}}}", ["2:38: found True, expected a number [order.weighted_fair.weights.a]"]),
    ("name: x\norder: {weighted_fair: {by: tennant}}", ["2:29: found 'tennant', expected tenant or class, or a list, did you mean 'tenant'? [order.weighted_fair.by]"]),
    ("name: x\nadmission:\n  - queue_limit: {by: class}", ["3:5: the key 'max' is missing [admission.0.queue_limit.max]"]),
    ("name: x\nadmission:\n  - queue_limit: {max: -1, retry_after: -30s, jitter: 150%}", [
        "3:24: found -1, expected a whole number of 0 or more, or a mapping [admission.0.queue_limit.max]",
        "3:41: found '-30s', a duration cannot be negative [admission.0.queue_limit.retry_after]",
        "3:55: found '150%', expected a fraction from 0 to 1 such as 15% or 0.15 [admission.0.queue_limit.jitter]",
    ]),
    ("name: x\nadmission:\n  - queue_limit: {by: all, max: {a: 1}}", ["3:18: queue_limit: max by name needs by: class, tenant or pool [admission.0.queue_limit]"]),
    ("name: x\nlimits:\n  - reserve: {for: {verifies: yes}, fraction: 15%}", [
        "3:31: for: verifies: expected true or false, found 'yes' [limits.0.reserve.for.verifies]",
    ]),
    ("name: x\nlimits:\n  - reserve: {for: {verifies: true}, fraction: 15%, lend: yes}", ["3:59: found 'yes', expected true or false [limits.0.reserve.lend]"]),
    ("name: x\nlimits:\n  - reserve: {fr: {verifies: true}, fraction: 15%}", [
        "3:5: the key 'for' is missing [limits.0.reserve.for]",
        "3:15: reserve has no parameter 'fr', did you mean 'for'? [limits.0.reserve.fr]",
    ]),
    ("name: x\nlimits:\n  - token_bucket: {rate: 5/s, burst: .inf}", ["3:38: found inf, expected a finite number [limits.0.token_bucket.burst]"]),
    ("name: x\noverload:\n  hysteresis:\n    modes:\n      severe: {enter: 0.5, leave: 0.6}", [
        "5:15: hysteresis: modes: severe: enter (0.5) must be above leave (0.6), or the mode flaps [overload.hysteresis.modes.severe]",
    ]),
    ("name: x\noverload:\n  hysteresis:\n    modes: {severe: {enter: 2, leave: 1}}\n    do: {severe: [{teir: small}]}", [
        "5:20: unknown key 'teir', did you mean 'tier'? [overload.hysteresis.do.severe.0.teir]",
    ]),
    ("name: x\nretry: {backoff: {base: 10s, cap: 1s}}", ["2:18: backoff: base must not be above cap [retry.backoff]"]),
    ("name: x\nretry: {backoff: {jitter: ful}}", ["2:27: found 'ful', expected full, equal, decorrelated or none, did you mean 'full'? [retry.backoff.jitter]"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=[text.replace("\n", "; ") for text, _ in REFUSED])
def test_a_bad_policy_is_refused_at_its_place(text, expected):
    assert complaints(text) == [line.replace("0: the key 'name'", "1:1: the key 'name'") for line in expected]


def test_every_problem_of_a_policy_is_told_in_one_pass():
    text = "vers: 1\norder: fifi\nadmission: [fifo, {shed: }]\nlimits:\n  - quota: {per: 5}\nretry: {backoff: {base: 0s}}\nname: 5\n"
    assert [line.split(": ")[0] for line in complaints(text)] == ["1:1", "2:8", "3:13", "3:20", "5:18", "6:25", "7:7"]


def paths(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, item in inner for place in ((*here, key), *paths(item, (*here, key)))]


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), st.text(max_size=3), st.sampled_from(["5s", "10%", "1/s", "fifo", "backoff"]),
    st.lists(st.integers(0, 3), max_size=2), st.dictionaries(st.sampled_from(["a", "class", "rate", "for", "pools", "fifo"]), st.integers(0, 3), max_size=2),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_stands_in_a_document_it_is_a_policy_or_a_list_of_problems(data):
    document = load(load_policy("backpressure").document).data
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(paths(document)))
        node = document
        for step in way:
            node = node[step]
        if data.draw(st.booleans()):
            del node[last]
        else:
            node[last] = data.draw(JUNK)
    policy, problems = outcome(document)
    assert problems if policy is None else re.fullmatch("[0-9a-f]{32}", policy.digest)


def outcome(document: Any) -> tuple[Policy | None, list[Any]]:
    """The policy, or what is wrong with it. Nothing else may come of a document."""
    try:
        return load_policy(document), []
    except DocumentErrors as error:
        return None, error.problems


# --- what is understood ------------------------------------------------------------------------------------


def test_every_slot_but_the_name_has_a_plain_default():
    policy = read("name: x")
    assert (policy.order.name, policy.version, policy.admission, policy.limits) == ("fifo", 1, (), ())
    assert (policy.overload, policy.retry, policy.backfill, policy.coalesce) == (None, None, None, None)


@pytest.mark.parametrize("text", ["name: x\norder: edf", "name: x\norder: {edf: }", "name: x\norder: {edf: {}}"])
def test_a_mechanism_without_parameters_can_be_written_in_three_ways(text):
    policy = read(text)
    assert policy.order.name == "edf"
    assert policy.digest == read("name: x\norder: edf").digest


def test_an_order_can_differ_per_pool():
    policy = read("name: x\norder: {pools: {gpu: {aging: {rate: 1/s}}, cpu: lifo}, default: edf}")
    assert (policy.order.name, {pool: spec.name for pool, spec in policy.order_by_pool.items()}) == (
        "edf",
        {"gpu": "aging", "cpu": "lifo"},
    )
    assert policy.document["order"] == {"pools": {"cpu": "lifo", "gpu": {"aging": {"rate": "1/s"}}}, "default": "edf"}
    assert load_policy(policy.document).digest == policy.digest


def test_parameters_reach_the_mechanism_in_its_own_units_and_new_each_time():
    spec = read(
        "name: x\nadmission: [{queue_limit: {max: {a: 5}, by: class, retry_after: 1m, jitter: 50%}}]"
    ).admission[0]
    one, two = spec.build(), spec.build()
    assert (one.max, one.retry_after, one.jitter) == ({"a": 5}, 60 * 10**9, 0.5)
    assert one is not two
    assert one.max is not two.max


def test_keywords_of_python_are_written_without_the_underscore():
    spec = read("name: x\nadmission: [{deadline_feasible: {else: reject}}]").admission[0]
    assert spec.build().else_ == "reject"
    assert "for" in parameters(Reserve)


def test_the_shipped_policies_are_the_ladder_and_its_rivals():
    assert set(names("policies")) == {
        "fifo", "strict_priority", "strict_priority_aging", "weighted_fair", "weighted_fair_admission", "backpressure", "edf", "drr",
    }  # fmt: skip


@pytest.mark.parametrize("name", names("policies"))
def test_a_shipped_policy_goes_by_its_file_name_survives_its_own_document_and_says_what_it_is(name):
    policy = load_policy(name)
    assert policy.name == name
    assert policy.about
    assert load_policy(policy.document).digest == policy.digest
    first = (ROOT / "policies" / f"{name}.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=policy.schema.json"


@pytest.mark.parametrize("name", names("policies"))
def test_every_number_of_a_shipped_policy_has_a_reason_beside_it(name):
    lines = (ROOT / "policies" / f"{name}.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        code = line.split("#")[0]
        if re.search(r"[:{,\[]\s*\d", code) and not code.startswith("version"):
            near = lines[max(0, number - 14) : number + 1]  # its own line, or the comment above its block
            assert any("#" in text for text in near), f"{name}.yaml:{number + 1}"


def test_the_ladder_adds_slots_rung_by_rung():
    weighted, admission, backpressure = (
        load_policy(name) for name in ("weighted_fair", "weighted_fair_admission", "backpressure")
    )
    assert weighted.order.settings == admission.order.settings == backpressure.order.settings
    assert (
        weighted.order.params["weights"].items()
        >= {"incident": 10, "interactive": 5, "automation": 3, "background": 1}.items()
    )
    assert not weighted.admission
    assert {"queue_limit", "deadline_feasible"} <= {spec.name for spec in admission.admission}
    assert "reserve" in {spec.name for spec in admission.limits}
    assert {spec.name for spec in admission.limits} <= {spec.name for spec in backpressure.limits}
    assert backpressure.overload is not None
    assert backpressure.retry is not None
    assert backpressure.retry.params["budget"]
    assert backpressure.coalesce is not None


# --- digests and differences -------------------------------------------------------------------------------

PLAIN = """\
name: x
version: 2
about: As it was.
order: {weighted_fair: {by: class, weights: {a: 10, b: 5}}}
admission:
  - queue_limit: {by: class, max: {a: 5}, retry_after: 90s, jitter: 50%}
  - shed: {classes: [b], when_mode: [severe]}
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PLAIN.replace("As it was.", "In other words."), "what it is about"),
        (PLAIN.replace("90s", "1m30s"), "another word for the same duration"),
        (PLAIN.replace("50%", "0.5"), "another word for the same fraction"),
        (PLAIN.replace("{a: 10, b: 5}", "{b: 5, a: 10}"), "the order of keys"),
        (PLAIN.replace("a: 10", "a: 10.0"), "another word for the same number"),
        (PLAIN.replace("jitter: 50%}", "jitter: 50%, verdict: reject}"), "a default written out"),
        (PLAIN + "backfill: none\n", "an empty slot written out"),
        ("version: 2\n" + PLAIN.replace("version: 2\n", ""), "the order of slots"),
        (
            "# comment\n"
            + PLAIN.replace("{by: class, weights: {a: 10, b: 5}}", "\n  {by: class,\n   weights: {a: 10, b: 5}}"),
            "layout",
        ),
    ],
)
def test_the_digest_does_not_depend_on(text, why):
    assert read(text).digest == read(PLAIN).digest, why


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("90s", "91s"),
        PLAIN.replace("a: 10", "a: 11"),
        PLAIN.replace("version: 2", "version: 3"),
        PLAIN.replace("name: x", "name: y"),
        PLAIN.replace("[b]", "[a]"),
        PLAIN.replace("weighted_fair", "drr"),
        PLAIN + "backfill: skip\n",
        "\n".join(
            [*PLAIN.splitlines()[:5], *reversed(PLAIN.splitlines()[5:])]
        ),  # a chain: the first that objects decides
    ],
)
def test_the_digest_changes_with_what_the_policy_does(text):
    assert read(text).digest != read(PLAIN).digest


def test_the_digest_is_the_same_in_every_process():
    code = "from simkit.policy import load_policy; print(load_policy('backpressure').digest)"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert found == {load_policy("backpressure").digest}


def test_a_difference_names_what_changed_and_nothing_else():
    changed = (
        PLAIN.replace("a: 10", "a: 11").replace("90s", "1m30s").replace("[b]", "[b, c]")
        + "retry: {backoff: {base: 2s}}\n"
    )
    assert diff(read(PLAIN), read(changed)) == [
        "- order.weighted_fair.weights.a: 10",
        "+ order.weighted_fair.weights.a: 11",
        "+ admission.1.shed.classes.1: c",
        "+ retry.backoff.base: 2s",
    ]
    assert diff(read(PLAIN), read(PLAIN)) == []


# --- where policies come from ------------------------------------------------------------------------------


def test_an_unknown_policy_is_told_with_the_nearest_and_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError,
        match=r"there is no policy 'weighted_fare', did you mean 'weighted_fair'\? \(looked at weighted_fare, ",
    ):
        load_policy("weighted_fare")


def test_a_policy_is_loaded_from_a_path_data_and_itself(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\norder: lifo\n")
    policy = load_policy(tmp_path / "mine.yaml")
    assert (policy.name, policy.path) == ("mine", tmp_path / "mine.yaml")
    assert load_policy(policy) is policy
    assert load_policy(policy.document) == Policy("mine", policy.order)
    assert load_policy("mine", relative_to=tmp_path).digest == policy.digest


def test_problems_name_the_file_they_are_in(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\norder: lifi\n")
    with pytest.raises(DocumentErrors) as caught:
        load_policy(tmp_path / "mine.yaml")
    assert (
        str(caught.value)
        == f"{tmp_path}/mine.yaml:2:8: there is no order mechanism 'lifi', did you mean 'lifo'? [order]"
    )


def test_what_a_policy_names_is_kept_with_its_place():
    text = """\
    name: x
    order: {pools: {gpu: fifo}, default: {weighted_fair: {by: [class, tenant], weights: {vip: 5}}}}
    admission: [{queue_limit: {by: pool, max: {cpu: 5, default: 9}}}, {shed: {classes: [bulk], tenants: [t], when_mode: [m]}}]
    limits:
      - reserve: {for: [{class: [a, b]}, {tenant: c}], pool: gpu, fraction: 10%}
    overload:
      hysteresis: {modes: {m: {enter: 2, leave: 1}}, do: {m: [{defer: [d]}, {tier: small}]}}
    """
    found = [(item.kind, item.name, f"{item.place.line}:{item.place.column}") for item in read(text).references]
    assert found == [
        ("pool", "gpu", "2:17"),
        ("class", "vip", "2:86"),
        ("pool", "cpu", "3:44"),
        ("class", "bulk", "3:85"),
        ("tenant", "t", "3:102"),
        ("class", "a", "5:30"),
        ("class", "b", "5:33"),
        ("tenant", "c", "5:47"),
        ("pool", "gpu", "5:58"),
        ("class", "d", "7:68"),
        ("tier", "small", "7:80"),
    ]


# --- mechanisms of one's own -------------------------------------------------------------------------------

LOTTERY = '''\
"""Test code."""
from dataclasses import dataclass
from pathlib import Path
from simkit.mechanisms import Limit, RankOrder, mechanism

Path(__file__).with_name("loaded").touch()


@mechanism("lottery")
@dataclass(eq=False)
class Lottery(RankOrder):
    """Smallest first."""

    patience_s: float = 60.0
    picky: bool = False
    sizes: tuple[int, ...] = ()

    def rank(self, task, now_s):
        return task.estimate_s
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(LOTTERY)
    (tmp_path / "mine.yaml").write_text("name: mine\norder: {mine.py@Lottery: {patience_s: 5}}\n")
    return tmp_path / "mine.yaml"


def test_code_is_loaded_only_when_that_is_allowed(mine):
    with pytest.raises(
        DocumentErrors, match=r"mine.yaml:2:9: 'mine.py@Lottery' is Python code: run with --allow-code to load it"
    ):
        load_policy(mine)
    assert not mine.with_name("loaded").exists()
    assert load_policy(mine, allow_code=True).order.build().patience_s == 5.0
    assert mine.with_name("loaded").exists()


def test_code_beside_the_librarys_policies_is_trusted(tmp_path, monkeypatch, mine):
    monkeypatch.setattr("simkit.library.folders", lambda kind: [tmp_path])
    assert load_policy("mine").order.build().patience_s == 5.0


def test_naming_a_policy_runs_no_code_that_it_does_not_name(mine):
    mine.write_text("name: mine\norder: lifo\n")
    load_policy(mine, allow_code=True)
    assert not mine.with_name("loaded").exists()


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("../evil.py@X", "'../evil.py' lies outside the folder of the document"),
        ("/etc/evil.py@X", "'/etc/evil.py' lies outside the folder of the document"),
        ("link.py@X", "'link.py' lies outside the folder of the document"),
        ("mne.py@Lottery", "there is no file 'mne.py' beside the document, did you mean 'mine.py'?"),
        ("mine.py@Lotery", "mine.py has no order mechanism 'Lotery' (mark the class with @mechanism)"),
        ("mine.py@Path", "mine.py has no order mechanism 'Path' (mark the class with @mechanism)"),
        ("mine.py@Limit", "mine.py has no order mechanism 'Limit' (mark the class with @mechanism)"),
        ("boom.py@X", "boom.py raised ZeroDivisionError: division by zero"),
        ("bye.py@X", "bye.py raised SystemExit: 7"),
        ("bad.py@X", "bad.py raised SyntaxError"),
        ("plain.py@X", "mechanism X must be a dataclass: its fields are its parameters"),
        ("types.py@X", "the types of X's fields cannot be resolved"),
        ("rude.py@X", "rude.py@X raised KeyError: 'no'"),
    ],
)
def test_code_that_cannot_be_used_is_refused_at_its_place(mine, reference, complaint):
    folder = mine.parent
    (folder.parent / "evil.py").write_text("")
    (folder / "link.py").symlink_to(folder.parent / "evil.py")
    (folder / "boom.py").write_text("1 / 0\n")
    (folder / "bye.py").write_text("raise SystemExit(7)\n")
    (folder / "bad.py").write_text("def\n")
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom simkit.mechanisms import RankOrder, mechanism\n"
    (folder / "plain.py").write_text(head + "@mechanism('plain')\nclass X(RankOrder):\n    pass\n")
    (folder / "types.py").write_text(
        head + "@mechanism('types')\n@dataclass\nclass X(RankOrder):\n    a: Nowhere = 1\n"
    )
    (folder / "rude.py").write_text(
        head
        + "@mechanism('rude')\n@dataclass\nclass X(RankOrder):\n    def __post_init__(self):\n        raise KeyError('no')\n"
    )
    mine.write_text(f"name: mine\norder:\n  {reference}: {{}}\n")
    with pytest.raises(DocumentErrors) as caught:
        load_policy(mine, allow_code=True)
    assert f"{mine}:3:3: " in str(caught.value) or f"{mine}:3:{len(reference) + 5}: " in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("parameters_", "complaint"),
    [
        ("{patience: 5}", "mine.py@Lottery has no parameter 'patience', did you mean 'patience_s'?"),
        ("{patience_s: '5'}", "found '5', expected a number"),
        ("{patience_s: true}", "found True, expected a number"),
        ("{patience_s: .nan}", "found nan, expected a finite number"),
        ("{picky: yes}", "found 'yes', expected true or false"),
        ("{sizes: 5}", "found 5"),
    ],
)
def test_parameters_of_ones_own_mechanism_are_checked_from_plain_types(mine, parameters_, complaint):
    mine.write_text(f"name: mine\norder: {{mine.py@Lottery: {parameters_}}}\n")
    with pytest.raises(DocumentErrors, match=r"mine.yaml:2:\d+: ") as caught:
        load_policy(mine, allow_code=True)
    assert complaint in str(caught.value)


def test_types_that_yaml_has_no_word_for_are_made_from_lists(mine):
    mine.write_text("name: mine\norder: {mine.py@Lottery: {sizes: [1, 2]}}\n")
    assert load_policy(mine, allow_code=True).order.build().sizes == (1, 2)


def test_a_changed_file_is_another_policy_and_is_loaded_again(mine):
    before = load_policy(mine, allow_code=True)
    mine.with_name("mine.py").write_text(
        LOTTERY.replace("60.0", "61.0")
    )  # same size, same second: a cached .pyc would not notice
    mine.write_text("name: mine\norder: {mine.py@Lottery: {}}\n")
    after = load_policy(mine, allow_code=True)
    assert after.order.build().patience_s == 61.0
    assert after.order.code_digest != before.order.code_digest
    assert not list(mine.parent.glob("__pycache__"))


def test_code_from_a_file_stays_out_of_the_registry(mine):
    load_policy(mine, allow_code=True)
    assert ("order", "lottery") not in registered()
    assert "there is no order mechanism 'lottery'" in complaints("name: x\norder: lottery")[0]


def test_a_policy_with_code_reaches_another_process_from_the_same_bytes(mine):
    policy = load_policy(mine, allow_code=True)
    packed = pickle.dumps(policy)
    code = "import pickle, sys; p = pickle.loads(sys.stdin.buffer.read()); print(p.digest, p.order.build().patience_s)"
    done = subprocess.run([sys.executable, "-c", code], input=packed, capture_output=True, check=True)
    assert done.stdout.decode().split() == [policy.digest, "5.0"]
    mine.with_name("mine.py").write_text(LOTTERY + "# changed\n")
    with pytest.raises(UsageError, match="was changed while it was in use"):
        pickle.loads(packed)


@pytest.mark.parametrize("name", names("policies"))
def test_every_shipped_policy_survives_pickling(name):
    policy = load_policy(name)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_class_defined_in_a_notebook_is_a_policy():
    @mechanism("newest")
    @dataclass(eq=False)
    class Newest(RankOrder):
        def rank(self, task, now_s):
            return -task.arrival_s

    policy = load_policy(Newest)
    forget(__name__)
    assert (policy.name, policy.order.slot) == ("newest", "order")
    assert isinstance(policy.order.build(), Newest)
    assert policy.order.code_digest  # an edited cell is another policy


@pytest.mark.parametrize("cls", [Path, Reserve])
def test_a_class_that_is_no_order_is_no_policy(cls):
    with pytest.raises(UsageError, match="is no order: mark it with @mechanism"):
        load_policy(cls)


def test_an_order_that_needs_parameters_must_be_given_them():
    @dataclass(eq=False)
    class Needy(Order):
        size: int

    with pytest.raises(UsageError, match="Needy needs size"):
        load_policy(Needy)


def test_entry_points_offer_mechanisms_by_name(monkeypatch):
    @dataclass(eq=False)
    class Offered(RankOrder):
        def rank(self, task, now_s):
            return 0

    @dataclass
    class Point:
        name: str
        value: str = "package:thing"
        loaded: list[str] = field(default_factory=list)

        def load(self) -> Any:
            self.loaded.append(self.name)
            if self.name == "broken":
                raise ImportError("gone")
            return mechanism(self.name)(Offered)

    points = [Point("offered"), Point("broken")]
    monkeypatch.setattr("simkit.policy.loading.entry_points", lambda group: points)
    try:
        assert read("name: x\norder: offered").order.cls is Offered
        assert points[1].loaded == []  # only what is named is imported
        assert complaints("name: x\norder: broken") == [
            "2:8: the entry point 'broken' (package:thing) raised ImportError: gone [order]"
        ]
        with pytest.raises(UsageError, match="the entry point 'broken'"):
            all_mechanisms()
    finally:
        forget(__name__)


def test_nested_parameters_and_complaints_of_a_mechanism_itself_are_placed():
    @dataclass(frozen=True)
    class Step:
        at: Duration
        share: Fraction = 1.0

    @mechanism("stepped")
    @dataclass(eq=False)
    class Stepped(RankOrder):
        steps: Mapping[str, Step] = field(default_factory=dict)

        def __post_init__(self) -> None:
            for name, step in self.steps.items():
                if step.share == 0:
                    raise ParameterError(f"stepped: steps: {name}: a share of nothing")

        def rank(self, task: Any, now_s: float) -> float:
            return 0.0

    Stepped.__init__.__annotations__["steps"] = Stepped.__annotations__["steps"] = Mapping[str, Step]
    Step.__annotations__.update(at=Duration, share=Fraction)
    try:
        assert read("name: x\norder: {stepped: {steps: {a: {at: 5s}}}}").order.build().steps == {"a": Step(5 * 10**9)}
        assert complaints("name: x\norder: {stepped: {steps: {a: {at: 5s, shar: 5%}}}}") == [
            "2:39: unknown key 'shar', did you mean 'share'? [order.stepped.steps.a.shar]"
        ]
        assert complaints("name: x\norder: {stepped: {steps: {a: {at: 5s, share: 0%}}}}") == [
            "2:30: stepped: steps: a: a share of nothing [order.stepped.steps.a]"
        ]
    finally:
        forget(__name__)


def test_two_policies_with_other_parameters_are_not_equal():
    one, two = (MechanismSpec("order", "aging", {"rate": rate}, Aging) for rate in ("1/s", "2/s"))
    assert one != two
