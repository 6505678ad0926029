"""The modules of ddp_sweep, from the top down; only the standard library is needed.

    main        what the program does, from arguments to exit code
    options     the command line
    plan        which runs there are, and in which order they are done
    folder      the sweep's folder: what is kept, what another start finds
    running     does the runs, one by one or as jobs
    local       runs on this machine, on hosts of a netlab or of a host file
    child       a run as a process that ends with us; also for ddp_tune
    slurm       runs as array jobs of Slurm
    jobs        jobs of Slurm, also for ddp_tune: submitting, waiting, results
    ending      the end of a program: its last line and exit code
    results     figures of a run, of its repeats, of a curve; the knee
    prices      dollars an hour of machine types, and which of them to rent
    progress, table, csv_file, page, chart    what people read
    project/    --project: predicts a run on other numbers of ranks
    prune       --prune: removes folders of runs and sweeps
    failure     errors: one line and an exit code
"""
