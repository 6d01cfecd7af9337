"""Training programs to run as they are or to adapt; each is one module with a `main(argv) -> int`."""
