"""The controller of TFTrainingJob: it reads what is, plans what should be, and does the next step."""
