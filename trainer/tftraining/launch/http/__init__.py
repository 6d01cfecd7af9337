"""The HTTP pages of a launcher: /status, /readyz, /healthz and /metrics."""
