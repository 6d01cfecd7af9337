"""Which failures restart one member alone, and which the gang. Pure; launchers and the operator ask here.

A worker beside parameter servers restarts alone, unless spec.restartPolicy.scope says otherwise.

What follows for the member that restarts alone, and for the others, is in gang/aftermath.py.
"""

from __future__ import annotations

from tftraining.launch.roles import Role


def restarts_alone(role: Role, scope: str, is_chief: bool) -> bool:
    """Whether the others train on while a replica of this role restarts; `scope` is that of spec.restartPolicy."""
    return not role.in_gang or (scope == "Pod" and role.restarts_alone and not is_chief)
