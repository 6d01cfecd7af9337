"""Turns an error of the API server into one line that says what to do. Pure, but for the definition of the resource in
this package, which an unknown field is looked up in."""

import re
from difflib import get_close_matches

from tftraining_api.kube.api import ApiError
from tftraining_api.model.names import GROUP, PLURAL
from tftraining_client.errors import ApiUnavailable, JobNotFound, NoCustomResource, PermissionDenied, UserError

NEAREST = 3
OLDER_DEFINITION = f"the installed definition of {PLURAL}.{GROUP} is older than this client"
UPGRADE = "upgrade the operator's chart, and see `tftj doctor`"
# The reason of an ApiError without an answer: there is no token to send.
NO_CREDENTIALS = "NoCredentials"
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_EXISTS = re.compile(rf'{PLURAL}\.{GROUP} "(?P<name>[^"]*)" already exists')
_READING = ("get", "list", "watch")


def as_user_error(error: ApiError, server: str, context: str) -> UserError:
    """The error as a message for a person, in one line also for the page of a proxy."""
    message = " ".join(error.message.split())
    if error.status == 0:
        return _unanswered(error.reason, message, server, context)
    if error.status == 401:
        return PermissionDenied(f"the API server refuses the credentials of context {context}: log in again")
    if error.status == 403:
        return PermissionDenied(_missing_right(message))
    if error.status == 404:
        return _not_found(error, context)
    if error.status in (400, 409, 422):
        return _refused(message)
    answer = " ".join([str(error.status), error.reason]).rstrip()
    return ApiUnavailable(f"the API server {server} answers {answer}" + (f": {message}" if message else ""))


def _refused(message: str) -> UserError:
    if lacking := _lacking_fields(message):
        return UserError(f"{OLDER_DEFINITION}: it lacks {', '.join(lacking)}; {UPGRADE}")
    if found := _EXISTS.search(message):
        return UserError(
            f"job {found['name']} already exists: choose another name, or let the new one take its place with "
            "`tftj submit --replace`: it resumes from the backup, or begins anew with `--replace --fresh`"
        )
    return UserError(f"the API server refuses the request: {message}{_near(message)}")


def _near(message: str) -> str:
    """The known fields that resemble the unknown ones of the message."""
    unknown = _UNKNOWN_FIELD.findall(message)
    if not unknown:
        return ""
    from tftraining_client.validation.crd import custom_resource  # noqa: PLC0415  it reads a file
    from tftraining_client.validation.problems import did_you_mean  # noqa: PLC0415

    return did_you_mean(unknown, custom_resource().schema)


def _lacking_fields(message: str) -> list[str]:
    """The fields that the API server does not know, and this client does."""
    unknown = [re.sub(r"\[\d+\]", "[]", each) for each in _UNKNOWN_FIELD.findall(message)]
    if not unknown:
        return []
    from tftraining_client.validation.crd import custom_resource, fields  # noqa: PLC0415  it reads a file

    known = set(fields(custom_resource().schema))
    return [each for each in unknown if each in known]


def no_subresource(name: str) -> UserError:
    """The error for a subresource that the definition of the resource lacks."""
    return UserError(f"{OLDER_DEFINITION}: it lacks the subresource {name}; {UPGRADE}")


def _unanswered(reason: str, message: str, server: str, context: str) -> UserError:
    if reason == NO_CREDENTIALS:
        return PermissionDenied(message)
    return ApiUnavailable(f"cannot reach the API server {server} (context {context}): {message}")


def unknown_job(name: str, namespace: str, known: list[str] | None) -> JobNotFound:
    """The error for a name that no job has, with the nearest names; `known` is None if they cannot be listed."""
    if known is None:
        return JobNotFound(f"no job {name} in namespace {namespace}")
    near = get_close_matches(name, known, NEAREST)
    if near:
        return JobNotFound(f"no job {name} in namespace {namespace}; the nearest names: {', '.join(near)}")
    rest = "the namespace has no jobs" if not known else "`tftj list` shows the jobs"
    return JobNotFound(f"no job {name} in namespace {namespace}; {rest}")


def is_unknown_name(error: ApiError) -> bool:
    """Whether the API server knows the resource, but no object of the name."""
    return error.status == 404 and error.reason == "NotFound" and '"' in error.message


def _missing_right(message: str) -> str:
    found = _FORBIDDEN.search(message)
    if found is None:
        return f"the API server denies the request: {message}"
    what = found["resource"] + (f".{found['group']}" if found["group"] else "")
    where = f"in namespace {found['namespace']}" if found["namespace"] else "in all namespaces"
    role = "view" if found["verb"] in _READING else "edit"
    may_not = f"{found['user']} may not {found['verb']} {what} {where}"
    return f"no permission: {may_not}; the cluster role {role} contains the right"


def _not_found(error: ApiError, context: str) -> UserError:
    if is_unknown_name(error):
        return UserError(error.message)
    return NoCustomResource(
        f"the cluster of context {context} does not know {PLURAL}.{GROUP}: install the operator's chart, or choose "
        "another --context"
    )
