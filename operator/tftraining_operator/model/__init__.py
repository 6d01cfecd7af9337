"""The observed children and nodes of a job, and launcher reports, as frozen types. Never does I/O, never decides."""
