/*
 * mpi_trainer.c - training over MPI: run by mpirun with two to eight ranks.
 *
 *     mpi_trainer         trains, and compares with the same training with ranks as threads
 *     mpi_trainer nomem P on rank 1 an allocation of a trainer fails, P percent of them after the
 *                         first: the job must end with the exit code for that, and nobody may
 *                         wait for a rank that has left
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collectives/compressors/compressor.h"
#include "collectives/core/transport.h"
#include "collectives/world/world.h"
#include "tests/support/small_run.h"

enum { STEPS = 12 };

static size_t check_run(struct dp_group *group, const char *layers, const char *const *sets)
{
    struct small_run run;
    struct outcome threads;
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_create(&run, layers, sets) != 0 ||
        small_train(&run, group->size, STEPS, NULL, &threads) != 0) {
        return 1;
    }
    wrong += small_run_trainer(&run, group, STEPS, &t) != DP_OK;
    for (int step = 0; step < STEPS && wrong == 0; step++) {
        wrong += dp_trainer_step(t, &report) != DP_OK;
        wrong += small_hash(t) != threads.hash[step][group->rank];
        wrong += report.loss != threads.loss[step][group->rank];
    }
    dp_trainer_destroy(t);
    outcome_fini(&threads);
    small_run_destroy(&run);
    return wrong;
}

/* Processes get the bits that threads get: these strategies add in an order of their own, which
 * does not depend on the transport. (That of `mpi` is unknown: its ranks only agree.) */
static size_t check_runs(struct dp_group *group)
{
    static const char *const strategies[] = {"comm.strategy=shm", "comm.strategy=ring",
                                             "comm.strategy=direct"};
    static const char *const overlaps[] = {"comm.overlap=on", "comm.overlap=off"};
    size_t wrong = 0;

    for (int i = 0; i < 6; i++) {
        const char *const sets[] = {strategies[i / 2], overlaps[i % 2], NULL};
        wrong += check_run(group, small_dense, sets);
        wrong += check_run(group, small_conv, sets);
    }
    return wrong;
}

/* The same with every compressor: with messages, and with shared memory. */
static size_t check_compressors(struct dp_group *group)
{
    static const char *const strategies[] = {"comm.strategy=ring", "comm.strategy=zero1:over=shm"};
    const struct dp_plugin *plugin;
    size_t wrong = 0;

    for (int i = 0; (plugin = dp_plugin_at(&dp_compressors, i)) != NULL; i++) {
        char set[64];
        const char *const sets[] = {set, strategies[i % 2], "comm.overlap=on", NULL};
        (void)snprintf(set, sizeof(set), "comm.compressor=%s", plugin->name);
        wrong += check_run(group, small_dense, sets);
    }
    return wrong;
}

/* The library's own allreduce: ranks agree in every step, and end near the others. */
static size_t check_mpi(struct dp_group *group)
{
    static const char *const sets[] = {"comm.strategy=mpi", "comm.overlap=on", NULL};
    static const char *const shm[] = {"comm.strategy=shm", NULL};
    struct small_run run, reference;
    struct outcome threads, mine;
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_create(&run, small_dense, sets) != 0 ||
        small_run_create(&reference, small_dense, shm) != 0 ||
        small_train(&reference, 1, STEPS, NULL, &threads) != 0 ||
        small_run_trainer(&run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS && wrong == 0; step++) {
        wrong += dp_trainer_step(t, &report) != DP_OK;
    }
    wrong += dp_host_state_fetch(t->state.host) != DP_OK;
    mine.weights = t->state.host->flat.weights;
    mine.trained = t->state.flat.trained;
    wrong += !(small_distance(&run, &mine, &threads) <= 1e-5); /* see test_trainer.c */
    dp_trainer_destroy(t);
    outcome_fini(&threads);
    small_run_destroy(&reference);
    small_run_destroy(&run);
    return wrong;
}

/* The number of allocations of a trainer on one rank. */
static int count_allocations(const struct small_run *run)
{
    dp_status status = DP_ERR_NOMEM;
    int nth = 0;

    dp_log_set_level(DP_LOG_NONE);
    while (status == DP_ERR_NOMEM) {
        struct dp_group *group = NULL;
        struct dp_trainer *t = NULL;
        if (dp_local_alone(&group) != DP_OK) {
            break;
        }
        dp_mem_fail_nth(++nth);
        status = small_run_trainer(run, group, STEPS, &t);
        dp_mem_fail_nth(0);
        dp_trainer_destroy(t);
        dp_group_destroy(group);
    }
    dp_log_set_level(DP_LOG_INFO);
    return nth - 1;
}

static int run_out_of_memory(struct dp_world *world, int percent)
{
    static const char *const sets[] = {"comm.strategy=shm", NULL};
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    struct small_run run;
    dp_status status;

    if (small_run_create(&run, small_conv, sets) != 0) {
        return 1;
    }
    const int nth = 1 + count_allocations(&run) * percent / 100;
    dp_mem_fail_nth(world->all->rank == 1 ? nth : 0);
    status = small_run_trainer(&run, world->all, STEPS, &t);
    for (int step = 0; step < STEPS && status == DP_OK; step++) {
        status = dp_trainer_step(t, &report);
    }
    if (status == DP_ERR_NOMEM) {
        dp_world_abort(world, dp_status_exit(status));
    }
    return 1; /* it must not come so far */
}

int main(int argc, char **argv)
{
    struct dp_world *world;
    size_t wrong;

    if (dp_world_create(&world) != DP_OK) {
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "nomem") == 0) {
        return run_out_of_memory(world, (int)strtol(argv[2], NULL, 10));
    }
    wrong = check_runs(world->all) + check_compressors(world->all);
    wrong += check_mpi(world->all);
    if (wrong > 0) {
        (void)fprintf(stderr, "rank %d of %d: %zu wrong\n", world->all->rank, world->all->size,
                      wrong);
        dp_world_abort(world, 1);
    }
    dp_world_destroy(world);
    return wrong > 0;
}
