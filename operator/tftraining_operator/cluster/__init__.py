"""All access to the API server and to the clock. Never decides what a job needs."""
