"""Checks before the start which of the configured namespaces can be watched. Never changes anything in them."""

import asyncio
import logging

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.names import GROUP, PLURAL, VERSION

logger = logging.getLogger(__name__)


async def watchable(api: Api, namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """The namespaces whose jobs may be listed; a warning names each of the others.

    A deleted namespace has no Role for the operator any more, and must not block the jobs of the others. All namespaces
    are kept if none would be left; one is kept after other API errors. The watches then report the error.
    """
    refusals = await asyncio.gather(*(_refusal(api, each) for each in namespaces))
    left = tuple(name for name, refusal in zip(namespaces, refusals, strict=True) if refusal is None)
    if not left:
        return namespaces
    for name, refusal in zip(namespaces, refusals, strict=True):
        if refusal is not None:
            logger.warning(
                "ignoring the namespace %s: remove it from watchNamespaces, or create it with the operator's Role, and"
                " restart the operator: %s",
                name,
                refusal,
            )
    return left


async def _refusal(api: Api, namespace: str) -> ApiError | None:
    try:
        await api.request("GET", f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}", query=[("limit", "1")])
    except ApiError as error:
        return error if error.status in (403, 404) else None
    return None
