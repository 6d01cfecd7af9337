"""The pages of a list, in a form that costs little before one looks at the objects: each of them is still its bytes.

Pure. A page of 500 pods that carry the addresses of 5,000 others has 100 MB: to decode that at once would keep a gang
that has lost a member waiting for half a second.
"""

import msgspec

FIRST_PAGE, MOST, LEAST = 100, 500, 10
# What a page is to have, in bytes.
PAGE_BYTES = 2 * 1024 * 1024
# So many objects are decoded and taken in before other work has its turn.
AT_ONCE = 20


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version_text: str = msgspec.field(name="resourceVersion")
    more: str = msgspec.field(name="continue", default="")

    @property
    def resource_version(self) -> int:
        return int(self.resource_version_text)


class Page(msgspec.Struct):
    """One page: the objects, and where the next one begins (`metadata.more`)."""

    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


def next_limit(objects: int, size: int) -> int:
    """How many objects to ask for next, if so many had that size in bytes."""
    return max(LEAST, min(MOST, objects * PAGE_BYTES // max(1, size)))
