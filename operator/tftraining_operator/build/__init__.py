"""Manifests of what a job needs. Each builder is a pure function of the job. Never decides whether it is needed."""
