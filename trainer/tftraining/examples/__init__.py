"""Training programs to run as they are or to start from; each is one module with a `main(argv) -> int`."""
