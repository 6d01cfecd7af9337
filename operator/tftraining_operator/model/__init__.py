"""The custom resource and its observed children, parsed once into frozen types. Never does I/O, never decides."""
