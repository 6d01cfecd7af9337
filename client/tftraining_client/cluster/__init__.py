"""Access to the TFTrainingJobs of a cluster: the connection, the jobs, their pods, events and logs."""
