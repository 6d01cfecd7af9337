"""Short programs to learn from and to copy: each is one file, and imports nothing of this project."""
