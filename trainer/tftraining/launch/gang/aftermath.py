"""What follows from a member that restarts alone (spec.restartPolicy.scope: Pod): which exits of others it explains.

Who restarts alone is decided in failure/restart_scope.py.

Pure. A worker beside parameter servers holds no state that others need: the chief gives its steps to the other workers,
and uses it again when it is back. A failed chief or parameter server restarts the whole gang. A lost server loses its
variables, so the chief's program fails; a new chief's program would meet servers that keep the old one's variables for
another ten minutes. A warm restart of all programs from the last checkpoint takes a second or two.
"""

from __future__ import annotations

from tftraining.launch.config.settings_and_defaults import Gang
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import Incident
from tftraining.launch.progress import Snapshot, has_reports
from tftraining.launch.roles import traits_of

# Seconds after a member's exit in which that exit explains a chief's failure: TensorFlow's coordinator does not survive
# the loss of a worker while it still connects to the cluster.
AFTERMATH_SECONDS = 15.0


def explains_exit(program_exit: Exit, last_incident: Incident | None, now: float) -> bool:
    """Whether the recent incident of a member restarted alone explains a program's failure."""
    if last_incident is None or not last_incident.alone or program_exit.signal is not None or program_exit.kind:
        return False
    return now - last_incident.at < AFTERMATH_SECONDS


def only_serves(name: str, gang: Gang, progress: Snapshot) -> bool:
    """Whether the program only serves the chief's requests until it is told to end. Such are a parameter server, and a
    worker beside parameter servers, which reports no steps of its own."""
    role = traits_of(name)
    if role.makes_steps and name != gang.chief and any(traits_of(each).serves for each in gang.members):
        return not has_reports(progress)
    return role.serves
