"""Why a program makes no copies in memory, or none now, where others tell these reasons apart."""

WAITS = "waits for the end of an epoch"  # between two backups
ENDED = "the training has ended"  # behind the last one
OTHER_MEMBER = "another member cannot"  # why this one makes no copies: the other one has a reason of its own
