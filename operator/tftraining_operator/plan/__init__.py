"""What should happen next, as a pure function of the job, the observed state and the time. Never does I/O."""
