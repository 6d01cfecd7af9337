"""The pages of a list, decoded down to the objects, each of which stays raw bytes until it is needed.

Pure. A page of 500 pods, each with the addresses of 5,000 others, has 100 MB: decoding it at once would delay the
recovery of another gang by half a second.
"""

import msgspec

FIRST_PAGE, MOST, LEAST = 100, 500, 10
# The wanted size of a page, in bytes.
PAGE_BYTES = 2 * 1024 * 1024
# Number of objects that are decoded before the event loop gets a turn.
AT_ONCE = 20


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version_text: str = msgspec.field(name="resourceVersion")
    more: str = msgspec.field(name="continue", default="")

    @property
    def resource_version(self) -> int:
        return int(self.resource_version_text)


class Page(msgspec.Struct):
    """One page: the objects, and the token of the next page (`metadata.more`)."""

    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


def next_limit(objects: int, size: int) -> int:
    """How many objects to request next, if a page of `objects` objects had `size` bytes."""
    return max(LEAST, min(MOST, objects * PAGE_BYTES // max(1, size)))
