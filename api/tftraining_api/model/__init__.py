"""The custom resource, parsed once into frozen types. Never does I/O, never decides."""
