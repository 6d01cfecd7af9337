"""The definition of this checkout has all fields that the operator knows; those that an older one lacks are named."""

from typing import Any

from tests.support.crd import definition
from tftraining_operator.model.served_schema import missing_fields

NAMES = [{"group": "tftraining.dev", "kind": "TFTrainingJob", "version": "v1"}]


def document(schema: dict[str, Any]) -> dict[str, Any]:
    named = {**schema, "x-kubernetes-group-version-kind": NAMES}
    return {"components": {"schemas": {"meta.ListMeta": {"type": "object"}, "dev.tftraining.v1.TFTrainingJob": named}}}


def schema() -> dict[str, Any]:
    (version,) = definition()["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_the_definition_of_this_version_lacks_nothing() -> None:
    assert missing_fields(document(schema())) == []


def test_what_an_older_definition_lacks_is_named_once() -> None:
    older = schema()
    spec, status = older["properties"]["spec"]["properties"], older["properties"]["status"]["properties"]
    del status["history"]
    del status["lastRestart"]["properties"]["lostSteps"]
    del spec["restartPolicy"]["properties"]["rules"]["items"]["properties"]["action"]
    del spec["code"]["properties"]["git"]
    expected = ["spec.code.git", "spec.restartPolicy.rules.action", "status.history", "status.lastRestart.lostSteps"]
    assert missing_fields(document(older)) == expected


def test_a_document_without_the_kind_is_told_apart_from_a_definition_without_fields() -> None:
    assert missing_fields({"components": {"schemas": {}}}) is None
    assert missing_fields(document({"type": "object"})) is not None


def test_a_loosened_definition_ends_no_operator() -> None:
    loose = schema()
    loose["properties"]["spec"]["properties"]["roles"] = {"type": "object", "additionalProperties": True}
    loose["properties"]["status"]["properties"].pop("history")
    assert "status.history" in (missing_fields(document(loose)) or [])
