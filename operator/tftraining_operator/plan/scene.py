"""What every policy of one pass looks at: gathered once, never changed but for the gang after a decision."""

from datetime import datetime

import msgspec

from tftraining_operator.model.observed import Observed
from tftraining_operator.model.report import Report
from tftraining_operator.model.spec import Frozen, JobSpec
from tftraining_operator.model.status import Status
from tftraining_operator.plan.gang import Gang, classify


class Scene(Frozen, frozen=True):
    """The spec, the classified gang, all that was seen, the operator's image, the time, and the Secret that is gone."""

    spec: JobSpec
    gang: Gang
    seen: Observed
    image: str
    now: datetime
    key_gone: str = ""

    @property
    def said(self) -> Report | None:
        """What the launcher in the chief's present pod says; what an earlier pod of that name has said is of no use."""
        heard, chief = self.seen.heard, self.gang.chief
        if not self.spec.in_place or heard is None or chief is None or heard.uid != chief.uid:
            return None
        return heard.report

    def after(self, status: Status) -> "Scene":
        """The same with the gang as the decision in `status` leaves it."""
        return msgspec.structs.replace(self, gang=classify(self.spec, status, self.seen))
