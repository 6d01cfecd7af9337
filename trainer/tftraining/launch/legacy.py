"""Legacy Keras for gangs: `fit` of Keras 3 fails under MultiWorkerMirroredStrategy with two or more workers.

The launcher asks for it; the interpreter that is going to run the program decides, for only it knows whether tf_keras
can be imported there: with TF_USE_LEGACY_KERAS=1 and no tf_keras, `tf.keras` raises. It must never overrule the user.
"""

from __future__ import annotations

TYPE_CHECKING = False  # every Python of the program imports this
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

VARIABLE = "TF_USE_LEGACY_KERAS"
REQUEST = "TFTRAINING_LEGACY_KERAS"
APPLIED = f"tftraining: {VARIABLE}=1: fit of Keras 3 cannot train two or more workers (keras issue 20585)"


def request(env: Mapping[str, str], gang: int) -> dict[str, str]:
    """What to add to the program's environment for a gang of so many members; the launcher's side."""
    return {REQUEST: "1"} if gang >= 2 and VARIABLE not in env else {}


def apply(env: MutableMapping[str, str]) -> bool:
    """Grant the request in `env`, in the program's interpreter; whether it was granted. A request that is done with is
    taken out; one that this interpreter cannot grant is left to those that it starts."""
    if REQUEST not in env:
        return False
    import importlib.util  # noqa: PLC0415

    granted = VARIABLE not in env and importlib.util.find_spec("tf_keras") is not None
    if granted:
        env[VARIABLE] = "1"
    if VARIABLE in env:
        del env[REQUEST]
    return granted
