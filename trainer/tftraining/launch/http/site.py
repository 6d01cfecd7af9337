"""The pages that a launcher serves: /healthz, /readyz, /status and /metrics. What they say is in pages.py."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from tftraining.launch.config.settings import Settings
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http import metrics, pages
from tftraining.launch.http.long_polls import LongPolls
from tftraining.launch.http.revision import RevisionCounter
from tftraining.launch.http.server import HttpServer, Response
from tftraining.launch.rendezvous.program_control import ProgramControl


class Site:
    """The pages of one member, and of the gang if it is the chief, which has a `coordinator`."""

    def __init__(self, settings: Settings, control: ProgramControl, coordinator: Coordinator | None) -> None:
        self._settings = settings
        self._control = control
        self._coordinator = coordinator
        watched = partial(pages.watched_fields, control, settings, coordinator)
        self._revisions = RevisionCounter(control.incarnation, watched)
        routes = {"/healthz": lambda: Response(200, "ok\n"), "/readyz": self._readyz}
        routes |= {"/status": self._status, "/metrics": self._metrics}
        waits, short = {"/status": LongPolls(self._revisions.current)}, {"/status": self._status_summary}
        self.server = HttpServer(routes, waits, short)

    def summary(self) -> dict[str, Any]:
        """The fields of /status without the members."""
        own = pages.member_status(self._control, self._settings)
        return own if self._coordinator is None else {**own, **pages.gang_summary(self._coordinator)}

    def _readyz(self) -> Response:
        warning = pages.why_not_training(self._control, self._settings, time.monotonic())
        return Response(503, f"{warning}\n") if warning else Response(200, "training\n")

    def _status(self) -> Response:
        fields = pages.member_status(self._control, self._settings)
        if self._coordinator is not None:
            fields |= pages.gang_status(self._coordinator, time.monotonic())
        return self._json_response(fields)

    def _status_summary(self) -> Response:
        return self._json_response(self.summary())

    def _json_response(self, fields: dict[str, Any]) -> Response:
        fields["revision"] = self._revisions.current()
        return Response(200, json.dumps(fields, separators=(",", ":")) + "\n", "application/json")

    def _metrics(self) -> Response:
        return Response(200, metrics.metrics(self._settings, self.summary()), "text/plain; version=0.0.4")
