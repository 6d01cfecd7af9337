"""The custom resource and what is observed of it, parsed once into frozen types. Never does I/O, never decides."""
