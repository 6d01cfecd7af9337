"""Which Keras a program gets (status.keras of its job, see docs/programs.md): its own, or legacy Keras in gangs.

The launcher requests legacy Keras; the program's interpreter decides, because only there it is known whether tf_keras
can be imported: with TF_USE_LEGACY_KERAS=1 and no tf_keras, `tf.keras` raises. It must never overrule the user's own
setting.
"""

from __future__ import annotations

TYPE_CHECKING = False  # every Python process of the program imports this module, so it must be cheap
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

VARIABLE = "TF_USE_LEGACY_KERAS"
REQUEST, PATCHES = "TFTRAINING_LEGACY_KERAS", "TFTRAINING_KERAS"
OWN, LEGACY, UNPATCHED = KINDS = ("Own", "Legacy", "Unpatched")
APPLIED = f"tftraining: {VARIABLE}=1: tf.keras is tf_keras (status.keras: {LEGACY})"


def request(env: Mapping[str, str], gang: int, keras: str) -> dict[str, str]:
    """The launcher's part: the variables to add to the program's environment for a gang of `gang` trainers.

    A job with legacy Keras may have launchers of a version that patches nothing, so its other launchers patch nothing
    either: all members must make the same collectives."""
    patches = {} if keras == OWN else {PATCHES: UNPATCHED}
    wanted = keras == LEGACY and gang >= 2 and VARIABLE not in env
    return {**patches, REQUEST: "1"} if wanted else patches


def apply(env: MutableMapping[str, str]) -> bool:
    """The program's part: set TF_USE_LEGACY_KERAS in `env` if requested and possible; whether it did. A request that
    this interpreter cannot grant stays in `env` for its child processes."""
    if REQUEST not in env:
        return False
    import importlib.util  # noqa: PLC0415

    granted = VARIABLE not in env and importlib.util.find_spec("tf_keras") is not None
    if granted:
        env[VARIABLE] = "1"
    if VARIABLE in env:
        del env[REQUEST]
    return granted
