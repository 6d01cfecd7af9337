"""What the operator and the client import of the program's side, too: pure, and without imports from the rest of it."""
