"""The planner: a pure function from a job, its observed children and the time to the next step of that job.

The planner is level-triggered: it asks what exists and what should exist, never what has just happened. It reads no
clock and does no I/O; the passes that carry a step out are in reconcile.py.

The algorithm
    `planner.plan` builds a Context (what is known, never changed) and a Draft (the step so far), and hands both to
    stages. A stage takes a context and a draft and returns a draft. `planner.ACTIVE`, `planner.ENDED` and
    `planner.ALWAYS` name the stages in their order, each with the condition under which it runs. An active job goes
    through ACTIVE until a stage ends the job or leaves nothing to decide; a job that has ended goes through ENDED;
    ALWAYS follows.

The invariants (tests/support/simulated_cluster/invariants.py checks them after each step)
    * A pod is created only when no pod of its name, of an older attempt or of an earlier job of that name is left.
    * The charged restarts never exceed the budget of spec.restartPolicy.
    * The phases Succeeded and Failed are final.
    * A job whose children match its status needs no write.
    * A decision is in the status before any child changes, so a crash of the operator in between loses nothing.

The files, in the order in which to read them
    planner, context, step        the stages, their input and their output
    gang                          the pods, sorted by what they are to the present attempt
    node_loss, node_conditions    pods on lost nodes, and on those with a condition for which pods leave
    incident                      what went wrong, and whose fault it was
    restart, restart_policy       spec.restartPolicy: new pods, rules, budget, back-off
    avoided_nodes                 status.avoidedNodes: where one member fails again and again
    restart_request               the annotation that asks for a restart
    keras                         which Keras the programs get, before the first pod
    assemble                      the pods that are missing, and how far the gang is
    spec_updates                  a changed number of workers, and other updates that running launchers take
    launcher_report, resumption   what the chief's launcher says, in the status
    member_warnings, no_progress, slow_member
                                  conditions that the launchers report
    memory_backup                 backups in memory, and where a restart resumes
    success_policy                spec.successPolicy, and the result that launchers leave
    end, clean_pods, workertemp_cleanup, ttl_after_finished
                                  the end of a job, and what remains to be done after it
    suspend, deadlines            spec.runPolicy.suspend, activeDeadlineSeconds and startDeadlineSeconds
    evaluator                     the evaluator's pod
    auxiliary_objects             the Secret, the NetworkPolicy and the PodGroup beside the pods
    quota_request, storage_warning
                                  what the gang asks of a quota; the warning of another job in its directory
    kueue_pods, kueue_successors  pods that Kueue holds by a finalizer, and the names of their successors
    look_first                    steps that wait for a look at the API server itself
    refused_writes                writes that the API server refuses
    unreadable                    jobs that another version of the operator has written
    status_writes                 which changes of the status may be written later
    messages                      what the status and the events say of a gang, and status.failure
"""
