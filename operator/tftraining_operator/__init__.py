"""The controller of TFTrainingJob: it observes the job and its children, plans the next step, and carries it out."""
