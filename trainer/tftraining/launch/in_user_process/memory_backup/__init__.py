"""Backups in memory, the part in the training process (docs/memory-backups.md)."""
