"""What the API server would say to a manifest, said here: the CRD's own schema, defaults and CEL rules.

    stored = validate(manifest)

It must never know a field or a rule by itself: all of that is in the CRD, which is shipped with this package.
"""

from tftraining_client.validation.crd import custom_resource
from tftraining_client.validation.metadata import metadata_problems
from tftraining_client.validation.problems import InvalidManifest, rejected, undecodable
from tftraining_client.validation.rules import rule_problems
from tftraining_client.validation.structure import Json, stored, structural_problems, unknown_fields

__all__ = ["InvalidManifest", "validate"]


def validate(manifest: Json) -> Json:
    """Return the manifest as the API server would store it, defaults filled in. InvalidManifest with its message."""
    resource = custom_resource()
    unknown = unknown_fields(manifest, resource.schema)
    if unknown:
        raise undecodable(resource, unknown)
    job = stored(manifest, resource.schema)
    problems = metadata_problems(job) + structural_problems(job, resource.schema)
    if not any(each.blocks for each in problems):
        problems += rule_problems(job, resource.schema)
    if problems:
        raise rejected(resource, job, problems)
    return job
