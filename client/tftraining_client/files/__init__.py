"""The files of a job's storage: their names, and the program in the cluster that `tftj cp` and `tftj ls` talk to."""
