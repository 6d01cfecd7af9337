"""Validates a manifest as the API server does: by the CRD's own schema, defaults and CEL rules.

    stored = validate(manifest)

This package must never define a field or a rule: the CRD, which is shipped with the client, defines all of them; those
of a pod template are in Kubernetes' OpenAPI description.
"""

from tftraining_client.validation.crd import custom_resource
from tftraining_client.validation.metadata import metadata_problems
from tftraining_client.validation.pod_template import check_templates, template_findings
from tftraining_client.validation.problems import InvalidManifest, NotInstalled, rejected, undecodable
from tftraining_client.validation.rules import rule_problems
from tftraining_client.validation.structure import Json, as_stored, structural_problems, unknown_fields

__all__ = ["InvalidManifest", "NotInstalled", "check_templates", "template_findings", "validate"]


def validate(manifest: Json) -> Json:
    """Return the manifest as the API server stores it, with defaults. InvalidManifest with the API server's message.
    NotInstalled without the packages of the extra `local`."""
    resource = custom_resource()
    unknown = unknown_fields(manifest, resource.schema)
    if unknown:
        raise undecodable(resource, unknown)
    job = as_stored(manifest, resource.schema)
    problems = metadata_problems(job) + structural_problems(job, resource.schema)
    if not any(each.blocks for each in problems):
        problems += rule_problems(job, resource.schema)
    if problems:
        raise rejected(resource, job, problems)
    return job
