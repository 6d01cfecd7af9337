"""spec.restartPolicy.rules in the launcher: the table that the operator is held to as well."""

from __future__ import annotations

import pytest

from tests.support.crd import definition
from tests.support.rules_table import CASES, IDS, Case
from tftraining.launch.failure.restart_rules import ACTIONS, Failure, Rule, decide


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_becomes_of_a_failure(case: Case) -> None:
    _, rules, (role, code, signal, reason, proven), action, words = case
    decision = decide([Rule.from_json(each) for each in rules], Failure(role, code, signal, reason), proven)
    assert (decision.action, decision.rule) == (action, words)


@pytest.mark.parametrize("raw", [{}, {"action": "Explode"}, {"action": "Ignore", "onExitCodes": ["x"]}])
def test_what_is_no_rule(raw: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Rule.from_json(raw)


def test_the_actions_are_those_of_the_custom_resource() -> None:
    crd = definition()
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    rule = spec["restartPolicy"]["properties"]["rules"]["items"]["properties"]
    assert set(ACTIONS) == set(rule["action"]["enum"])
