/*
 * mpi_collectives.c - what every group and every strategy must do, over MPI: run by mpirun with
 * any number of ranks. The same checks as test_group.c and test_strategy.c; with arguments, those
 * of the strategies named alone, or
 *
 *     mpi_collectives torn      MPI gives the last rank no shared memory, but the others: all keep
 *                               private memory, and nobody waits for a rank that has none
 *     mpi_collectives full      MPI gives memory, but where it lies there is no room for the last
 *                               rank's: the same
 *     mpi_collectives narrow    the last rank may not map what all of them want to share
 *                               (ulimit -v): the same
 *     mpi_collectives abort     rank 0 ends the job while its engine is inside of MPI: MPI_Abort is
 *                               called when that has come back; exit code 3, not 4
 *     mpi_collectives nomem N   the N-th allocation of a further group, and of watching its ranks,
 *                               fails on the last rank: the job must end with the exit code for
 *                               that
 */
#define _GNU_SOURCE /* memfd_create */
#include <hwloc.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/core/engine.h"
#include "collectives/strategies/strategy.h"
#include "collectives/world/liveness.h"
#include "collectives/world/world.h"
#include "tests/support/checks.h"
#include "tests/support/strategies/strategy_checks.h"

/* All ranks get the number of all errors, so that they end together with the same code. */
static int report(struct dp_group *group, const char *what, size_t wrong)
{
    const int failed = dp_group_agree(group, wrong == 0 ? DP_OK : DP_ERR_INTERNAL) != DP_OK;

    if (wrong > 0) {
        (void)fprintf(stderr, "rank %d of %d: %s: %zu wrong\n", group->rank, group->size, what,
                      wrong);
    } else if (group->rank == 0 && !failed) {
        (void)printf("%s: right on %d ranks\n", what, group->size);
    }
    return failed;
}

/* A strategy that refuses these ranks is not reported as right. */
static int report_strategy(struct dp_group *group, const char *text)
{
    const char *why_not = NULL;
    const size_t wrong = check_strategy(group, text);

    if (!strategy_refuses(group, text, &why_not)) {
        return report(group, text, wrong);
    }
    if (wrong == 0 && group->rank == 0) {
        (void)printf("%s: refused on %d ranks: %s\n", text, group->size, why_not);
    }
    return wrong == 0 ? 0 : report(group, text, wrong);
}

/* Options, and what needs options to run over MPI. */
static const char *const texts[] = {
    "mpi:nonblocking=1", "ring:segment_kb=1", "direct:segment_kb=1",
    "tree:segment_kb=1", "hier:inner=mpi",    "hier:inner=direct,outer=mpi",
};

static int check_texts(struct dp_group *group, const char *const *list, int count)
{
    int failed = 0;

    for (int i = 0; i < count; i++) {
        failed += report_strategy(group, list[i]);
    }
    return failed;
}

static int check_all(struct dp_group *group)
{
    const struct dp_plugin *plugin;
    int failed = report(group, "group", check_group(group, NULL));

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        failed += report_strategy(group, plugin->name);
    }
    return failed + check_texts(group, texts, sizeof(texts) / sizeof(texts[0]));
}

static int torn_rank = -1, full_rank = -1;
static int windows; /* that MPI was asked for */

/* Replaces a rank's memory, from the first whole page on, by pages after the end of a file.
 * Touching them kills the process, as on a full file system. */
static void take_room(char *base, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = -(uintptr_t)base % page;
    const int file = memfd_create("full", 0);

    if (file < 0 || mmap(base + skip, (bytes - skip) / page * page, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        perror("no memory without room");
        abort();
    }
    (void)close(file);
}

/* In place of MPI's. */
int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base,
                            MPI_Win *window)
{
    int rank;
    const int result = PMPI_Win_allocate_shared(size, unit, info, comm, base, window);

    windows++;
    (void)MPI_Comm_rank(comm, &rank);
    if (rank == full_rank) {
        take_room(*(char **)base, (size_t)size);
    }
    return rank == torn_rank ? MPI_ERR_NO_MEM : result;
}

static atomic_bool slow;   /* tests of messages take their time */
static atomic_int inside;  /* of MPI, in such a test */
static atomic_int entered; /* how often */

/* In place of MPI's. */
int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses)
{
    int result;

    atomic_fetch_add(&inside, 1);
    atomic_fetch_add(&entered, 1);
    if (atomic_load(&slow)) {
        (void)usleep(50000);
    }
    result = PMPI_Testall(count, requests, done, statuses);
    atomic_fetch_sub(&inside, 1);
    return result;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    return PMPI_Abort(comm, atomic_load(&inside) > 0 ? 4 : code);
}

/* A job that waits for ranks that never arrive. */
static dp_status wait_in_vain(void *arg, int index)
{
    (void)index;
    return dp_group_barrier(arg);
}

/* Returns only where it fails. */
static int abort_beside_a_job(struct dp_world *world)
{
    struct dp_job job = {.run = wait_in_vain, .arg = world->all};
    struct dp_engine *engine = NULL;

    if (world->all->rank == 0) {
        atomic_store(&slow, true);
        atomic_store(&entered, 0);
        if (dp_engine_create(world->all, DP_RUN_ON_THREAD, &engine) != DP_OK ||
            dp_engine_submit(engine, &job) != DP_OK) {
            return 1;
        }
        while (atomic_load(&entered) == 0) {
            (void)usleep(1000);
        }
        dp_world_abort(world, 3);
    }
    for (;;) {
        (void)pause(); /* until rank 0 ends this one, too */
    }
}

/* With what makes the last rank's memory fail. */
static int check_private(struct dp_group *group, const char *what, int *rank)
{
    char *memory;
    size_t wrong;

    *rank = group->size - 1;
    memory = dp_group_memory(group, DP_MEM_COMM, 500000);
    *rank = -1;
    wrong = memory == NULL || !group->unshared || dp_group_reaches(group, memory);
    dp_group_release(group, memory);
    return report(group, what, wrong);
}

/* Of a new group: each window takes files and mappings. */
static int check_small(struct dp_world *world)
{
    const int before = windows;
    struct dp_group *group = NULL;
    void *pieces[8];
    size_t wrong = 0;

    if (dp_world_group(world, &group) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < 8; i++) {
        pieces[i] = dp_group_memory(group, DP_MEM_COMM, 100);
        wrong += pieces[i] == NULL;
    }
    wrong += windows > before + 1;
    for (int i = 0; i < 8; i++) {
        dp_group_release(group, pieces[i]);
    }
    dp_group_destroy(group);
    return report(world->all, "small pieces in one window", wrong);
}

/* The last rank only reads: it has no part in the group of those that share gradients. */
static int check_roles(struct dp_world *world)
{
    const int size = world->all->size;
    const struct dp_roles roles = {.count = {[DP_ROLE_TRAIN] = size - 1, [DP_ROLE_READ] = 1}};
    const bool reads = world->all->rank == size - 1;
    size_t wrong = 0;

    if (size == 1) {
        return 0;
    }
    if (dp_world_divide(world, &roles) != DP_OK) {
        return 1;
    }
    wrong += world->role != (reads ? DP_ROLE_READ : DP_ROLE_TRAIN);
    wrong += (world->train == NULL) != reads;
    if (world->train != NULL) {
        wrong += world->train == world->all || world->train->size != size - 1;
        wrong += world->train->rank != world->all->rank;
    }
    dp_world_unite(world);
    wrong += world->train != world->all;
    return report(world->all, "roles", wrong);
}

/* The address space that this process has taken. */
static size_t mapped_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    char text[64];
    const bool read = file != NULL && fgets(text, sizeof(text), file) != NULL;

    if (!read) {
        perror("/proc/self/statm");
        abort();
    }
    (void)fclose(file);
    return strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* The last rank has addresses for its own piece, but not for all pieces. */
static int check_narrow(struct dp_group *group)
{
    const size_t bytes = (size_t)32 << 20;
    const struct rlimit most = {mapped_bytes() + 3 * bytes / 2, RLIM_INFINITY};
    char *memory;
    size_t wrong = 0;

    if (group->rank == group->size - 1) {
        wrong += setrlimit(RLIMIT_AS, &most) != 0;
    }
    memory = dp_group_memory(group, DP_MEM_COMM, bytes);
    wrong += memory == NULL || !group->unshared || dp_group_reaches(group, memory);
    dp_group_release(group, memory);
    return report(group, "a narrow address space", wrong);
}

/* Does not return on a rank that fails. */
static int run_out_of_memory(struct dp_world *world, int nth)
{
    struct dp_liveness *liveness = NULL;
    struct dp_group *group = NULL;
    dp_status status;

    dp_mem_fail_nth(world->all->rank == world->all->size - 1 ? nth : 0);
    status = dp_world_group(world, &group);
    if (status == DP_OK) {
        status = dp_liveness_create(group, &liveness);
    }
    dp_mem_fail_nth(0);
    status = dp_group_agree(world->all, status);
    if (status != DP_OK) {
        dp_world_abort(world, dp_status_exit(status));
    }
    dp_liveness_destroy(liveness);
    dp_group_destroy(group);
    dp_world_destroy(world);
    return 1;
}

static int check_some(struct dp_world *world, int argc, char **argv)
{
    if (argc == 1) {
        return check_all(world->all) + check_small(world) + check_roles(world);
    }
    if (strcmp(argv[1], "torn") == 0) {
        return check_private(world->all, "torn memory", &torn_rank);
    }
    if (strcmp(argv[1], "full") == 0) {
        return check_private(world->all, "memory without room", &full_rank);
    }
    if (strcmp(argv[1], "narrow") == 0) {
        return check_narrow(world->all);
    }
    return check_texts(world->all, (const char *const *)&argv[1], argc - 1);
}

/* What hwloc, which Open MPI asks in this process, may find: nothing where there is one host. */
static int count_devices(void)
{
    const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");
    hwloc_topology_t tree;
    int found = -1;

    if (here == NULL || all == NULL || strcmp(here, all) != 0) {
        return 0;
    }
    if (hwloc_topology_init(&tree) != 0) {
        return found;
    }
    if (hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
        hwloc_topology_load(tree) == 0) {
        found = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_PCI_DEVICE);
    }
    hwloc_topology_destroy(tree);
    return found;
}

/* Whether a watchdog that sees this rank does not see that it does something. */
static int hidden_from_watchdogs(const struct dp_world *world)
{
    const struct dp_trace_mark *mark =
        world->liveness != NULL ? dp_liveness_mark(world->liveness) : NULL;
    const unsigned long long changes = mark != NULL ? atomic_load(&mark->changes) : 0;

    if (mark != NULL) {
        DP_SPAN(DP_PHASE_OTHER, 0);
    }
    return mark != NULL && atomic_load(&mark->changes) == changes;
}

int main(int argc, char **argv)
{
    const struct dp_device *device;
    struct dp_stream *stream;
    struct dp_world *world;
    int failed;

    /* MPI_Init may sleep longer, where ranks share cores; afterwards that is over. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    if (dp_world_create(&world) != DP_OK || dp_device_find("cpu", &device) != DP_OK ||
        device->stream_create(device, 1, &stream) != DP_OK) {
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "nomem") == 0) {
        return run_out_of_memory(world, (int)strtol(argv[2], NULL, 10));
    }
    if (argc == 2 && strcmp(argv[1], "abort") == 0) {
        return abort_beside_a_job(world);
    }
    world->all->stream = stream;
    failed = report(world->all, "sleeps", prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL) != 1);
    failed += report(world->all, "devices", count_devices() != 0);
    failed += report(world->all, "watchdogs", hidden_from_watchdogs(world));
    failed += check_some(world, argc, argv);
    device->stream_destroy(stream);
    dp_world_destroy(world);
    {
        DP_SPAN(DP_PHASE_OTHER, 0); /* which no watchdog is told of any more */
    }
    return failed > 0;
}
