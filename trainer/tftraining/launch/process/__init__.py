"""The processes of the user's program, seen from the launcher: start, output, progress, lease, end."""
