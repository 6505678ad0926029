/*
 * mpi_lockstep.c - a program with its own training loop, as a user of the library would write it:
 * for tests/runs/tools/lockstep.py, alone or under mpirun.
 *
 *     mpi_lockstep OUT STEPS [KEY=VALUE...] [fault=NAME]
 *         goes on from the newest checkpoint in OUT, if there is one, until step STEPS, evaluates,
 *         saves, and opens what it has saved, which must evaluate to the same. A fault is of the
 *         last rank alone: open (the source), or forward (the layer, in the midst of a step).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/own_plugins.h"

enum { ARGUMENTS = 3, SETS = 16 };

/* Some steps, an evaluation, a checkpoint. */
static dp_status train(struct dp_lockstep *training, uint64_t steps, double evaluation[2])
{
    struct dp_lockstep_step step = {.step = 0};

    while (dp_lockstep_steps(training) < steps) {
        DP_TRY(dp_lockstep_step(training, &step));
        if (step.step != dp_lockstep_steps(training) || !(step.samples_per_second > 0.0) ||
            !(step.accuracy >= 0.0 && step.accuracy <= 1.0)) {
            return DP_FAIL(DP_ERR_INTERNAL, "step %llu is reported wrongly",
                           (unsigned long long)step.step);
        }
    }
    DP_TRY(dp_lockstep_evaluate(training, &evaluation[0], &evaluation[1]));
    return dp_lockstep_save(training);
}

static dp_status run(struct dp_world *world, const struct dp_lockstep_options *options,
                     uint64_t steps)
{
    struct dp_lockstep *training = NULL;
    double before[2] = {0.0, 0.0}, after[2] = {0.0, 0.0};
    dp_status status;

    DP_TRY(dp_lockstep_create(world, options, &training));
    status = train(training, steps, before);
    dp_lockstep_destroy(training);
    DP_TRY(status);

    DP_TRY(dp_lockstep_create(world, options, &training));
    status = dp_lockstep_steps(training) == steps
                 ? dp_lockstep_evaluate(training, &after[0], &after[1])
                 : DP_FAIL(DP_ERR_INTERNAL, "the checkpoint is of another step");
    dp_lockstep_destroy(training);
    DP_TRY(status);
    if (before[0] != after[0] || before[1] != after[1]) {
        return DP_FAIL(DP_ERR_INTERNAL, "what was saved evaluates to something else");
    }
    if (dp_lockstep_rank(world) == 0) {
        printf("%d ranks, step %llu: loss %a, accuracy %a\n", dp_lockstep_ranks(world),
               (unsigned long long)steps, after[0], after[1]);
    }
    return DP_OK;
}

static void break_something(const char *name)
{
    if (strcmp(name, "open") == 0) {
        own_faults.open = DP_ERR_DATA;
    } else {
        own_faults.forward = DP_ERR_UNAVAILABLE;
        own_faults.forwards = 5;
    }
}

int main(int argc, char **argv)
{
    static const char fault[] = "fault=";
    const char *sets[SETS];
    struct dp_lockstep_options options = {.text = own_config, .sets = sets, .resume = "auto"};
    struct dp_world *world = NULL;
    dp_status status;

    if (argc < ARGUMENTS || argc > ARGUMENTS + SETS) {
        return dp_status_exit(DP_ERR_USAGE);
    }
    dp_openmp_spin_briefly(argv);
    options.out = argv[1];
    status = dp_lockstep_join(&world);
    for (int i = ARGUMENTS; i < argc && status == DP_OK; i++) {
        if (strncmp(argv[i], fault, strlen(fault)) != 0) {
            sets[options.set_count++] = argv[i];
        } else if (dp_lockstep_rank(world) == dp_lockstep_ranks(world) - 1) {
            break_something(argv[i] + strlen(fault));
        }
    }
    status = status == DP_OK ? dp_lockstep_add_source(&own_source) : status;
    status = status == DP_OK ? dp_lockstep_add_layer(&own_layer) : status;
    status = status == DP_OK ? run(world, &options, strtoull(argv[2], NULL, 10)) : status;
    return dp_lockstep_leave(world, status);
}
