"""Small scenarios as plain data, for tests that need real logs quickly."""

from __future__ import annotations

import json
from typing import Any

from simkit.scenario import Scenario, load_scenario

TWO_TENANTS: dict[str, Any] = {
    "name": "two_tenants",
    "seed": 11,
    "horizon": "120s",
    "replications": 4,
    "classes": {"interactive": {"starved_after": "5s"}, "background": {"starved_after": "60s"}},
    "platform": {
        "pools": {"gpu": {"slots": 2}, "verifier": {"slots": 1}},
        "apis": {"github": {"limits": [{"requests": "60/min", "burst": 5}], "latency": "200ms"}},
    },
    "workflows": {
        "coding": {
            "tasks": {
                "plan": {"pool": "gpu", "service": {"exp": {"mean": "1s"}}, "cost": "$0.02"},
                "read": {"pool": "github", "after": ["plan"], "service": "100ms"},
                "verify": {"pool": "verifier", "after": ["read"], "verifies": True, "service": "500ms"},
            },
            "defect": "10%",
            "detection": "90%",
        }
    },
    "workload": [
        {"name": "flood", "tenant": "a", "class": "background", "workflow": "coding", "arrivals": {"burst": {"at": "1s", "count": 60}}},
        {"name": "people", "tenant": "b", "class": "interactive", "workflow": "coding", "priority": 5, "deadline": "30s",
         "arrivals": {"poisson": {"rate": "0.3/s"}}},
    ],
    "policies": ["fifo", "strict_priority", "weighted_fair"],
}  # fmt: skip


def two_tenants(**changes: Any) -> Scenario:
    return load_scenario({**TWO_TENANTS, **changes})


HOSTILE = "<script>alert(1)</script>"
"""A name that a page must show as text."""
FORMULA = "=2+3|`*_x_*[a](b)"
"""A name that a spreadsheet or Markdown must show as text."""


def hostile(**changes: Any) -> Scenario:
    """The same load under names that want to be more than names."""
    text = json.dumps({**TWO_TENANTS, **changes})
    for plain, name in (("background", HOSTILE), ("gpu", "a & b > c"), ("flood", "_flood")):
        text = text.replace(f'"{plain}"', json.dumps(name))
    data = json.loads(text)
    data["workload"][0]["tenant"], data["workload"][1]["tenant"] = HOSTILE, FORMULA
    return load_scenario(data)
