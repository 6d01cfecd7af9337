"""The roles of a job's replicas, and the traits of each role: one table for operator, launchers and client.

Pure. Other modules ask for a trait and never compare names: a new role is a row of this table and a field of
spec.replicaSpecs. The constants are for places where TensorFlow or a field of the API names the role itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RoleName = Literal["chief", "worker", "ps", "evaluator"]
CHIEF: RoleName = "chief"
WORKER: RoleName = "worker"
PS: RoleName = "ps"
EVALUATOR: RoleName = "evaluator"


@dataclass(frozen=True)
class Role:
    """The traits of one role."""

    name: RoleName
    # Listed in TF_CONFIG's cluster. The gang's start waits for the replica, a scheduler or a queue places its pod with
    # those of the gang, and its failure is charged. A replica outside the gang starts, restarts and ends by itself.
    in_gang: bool = False
    # The replica trains: the first one is the chief, and spec.successPolicy AllWorkers waits for all of them.
    makes_steps: bool = False
    # The number of replicas may change while the gang trains, and spec.minReplicas allows rounds with fewer.
    resizable: bool = False
    # With spec.restartPolicy.scope Pod the others train on while a replica other than the chief restarts.
    restarts_alone: bool = False
    # The replica answers requests of the others until they have finished. Beside it workers may do the same, and
    # spec.restartPolicy.scope is Pod by default.
    serves: bool = False


# In the order of ranks: the order of TF_CONFIG's cluster, in which the first replica of the gang is the chief.
ROLE_TRAITS = (
    Role(CHIEF, in_gang=True, makes_steps=True),
    Role(WORKER, in_gang=True, makes_steps=True, resizable=True, restarts_alone=True),
    Role(PS, in_gang=True, serves=True),
    Role(EVALUATOR),
)
ROLES: tuple[RoleName, ...] = tuple(role.name for role in ROLE_TRAITS)
GANG_ROLES: tuple[RoleName, ...] = tuple(role.name for role in ROLE_TRAITS if role.in_gang)
TRAINER_ROLES: tuple[RoleName, ...] = tuple(role.name for role in ROLE_TRAITS if role.makes_steps)
OUTSIDE_GANG: tuple[RoleName, ...] = tuple(role.name for role in ROLE_TRAITS if not role.in_gang)
RESIZABLE_ROLES: tuple[RoleName, ...] = tuple(role.name for role in ROLE_TRAITS if role.resizable)
SERVING_ROLES: tuple[RoleName, ...] = tuple(role.name for role in ROLE_TRAITS if role.serves)
_BY_NAME: dict[str, Role] = {role.name: role for role in ROLE_TRAITS}


def traits(role: str) -> Role:
    """The traits of the role; KeyError if there is no such role."""
    return _BY_NAME[role]


def role_of(member: str) -> str:
    """`worker` of `worker-1`."""
    return member.rpartition("-")[0]


def traits_of(member: str) -> Role:
    """The traits of the role of a member such as `worker-1`; KeyError if there is no such role."""
    return _BY_NAME[role_of(member)]


def is_outside_gang(member: str) -> bool:
    """Whether the name is that of a replica outside the gang; False for any other text."""
    return role_of(member) in OUTSIDE_GANG
