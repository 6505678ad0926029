"""The modules of ddp_tune, from the top down. Optuna, which is not part of this project, chooses
the values; it is imported where it is needed, so that all else works without it.

    main        what the program does, from arguments to exit code
    options     the command line
    study       the study of Optuna: asking, telling, going on after an interruption
    trial       one training: its command, its metrics while it runs, its result
    goals       what is sought: from which figures, and whether more is better
    space       space.yaml: which keys are tried, between which values

Errors, and what tells cores and the ends of processes, are launch/sweep's.
"""
