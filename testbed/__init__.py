"""A real Kubernetes cluster for tests, from pinned sources, on any machine.

For the tests and the demo only: it must never import the operator or the trainer, which it treats as images to load.
"""
