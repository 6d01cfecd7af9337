"""Manifests of a job's children. Each builder is a pure function of the job. Never decides which children to create."""
