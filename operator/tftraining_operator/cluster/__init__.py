"""Everything that talks to the API server or to the clock. Never decides what a job needs."""
