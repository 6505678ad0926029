#include "collectives/world/world.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/system/guard.h"
#include "collectives/core/backoff.h"
#include "collectives/core/consistency.h"
#include "collectives/core/engine.h"
#include "collectives/core/mpi/left_memory.h"
#include "collectives/core/mpi/start_mpi.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/shrink_mpi.h"
#include "collectives/core/transport.h"
#include "collectives/core/transport_mpi.h"
#include "collectives/world/failure_detector.h"
#include "collectives/world/host_names.h"
#include "collectives/world/liveness.h"
#include "collectives/world/start_watch.h"

/* How long the engine's thread may take to leave MPI once its waits are cancelled: they sleep for
 * at most 20 ms. */
static const uint64_t rest_ns = 1000000000;

/* mpirun ends a job in which a rank has died; but it may take long to notice on a busy machine, and
 * a rank that ends the job before it does takes the dead rank's exit code from it. */
enum { MPIRUN_S = 30 };

/* How long the failure detector may take to see why a wait ended. */
static const uint64_t find_ns = 5000000000;

/* How long it may take until somebody has found out why a call of MPI failed. */
static const uint64_t explain_ns = 8000000000;

/* Of all ranks of the world that is there, or comes next. */
static MPI_Comm everyone = MPI_COMM_WORLD;

/* State of dp_world_farewell(): the current world, and whether this process was asked to end. */
static pthread_mutex_t farewell_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dp_world *the_world;
static bool asked_to_end;

/* Whether a call of MPI failed since a rank has died: then the failure detector ends all waits.
 * Where that was seen on another host only, the launcher ends this rank. */
static bool is_lost(void *context)
{
    struct dp_world *world = context;
    struct dp_backoff backoff = {.cancel = &world->cancel};
    bool ends = false;

    while (backoff.waited_ns < (ends ? MPIRUN_S * 1000000000ull : explain_ns) &&
           dp_backoff_wait(&backoff)) {
        ends = dp_failure_detector_ends(world->detector);
    }
    return ends || atomic_load(&world->cancel) != 0;
}

static dp_status world_over_mpi(struct dp_world *world)
{
    int provided = 0;

    world->mpirun = getenv("OMPI_COMM_WORLD_RANK") != NULL || /* MPI itself sets it, too */
                    dp_guard_ends_job();
    DP_TRY(dp_mpi_start(&provided));
    world->mpi = true;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_SERIALIZED) {
        return DP_FAIL(DP_ERR_MPI,
                       "this MPI offers thread level %d; MPI_THREAD_SERIALIZED is "
                       "needed, since a second thread shares gradients",
                       provided);
    }
    dp_mpi_library(world->library, sizeof(world->library));
    DP_TRY(dp_mpi_group_create(everyone, &world->cancel, &world->all));
    dp_mpi_fabric(world->all->nodes, world->fabric);
    return DP_OK;
}

void dp_world_allow_outage(struct dp_world *world, int seconds)
{
    if (world->liveness != NULL) {
        dp_liveness_allow_outage(world->liveness, seconds);
        dp_watchdog_allow_outage(world->watchdog, seconds);
    }
}

void dp_world_allow_hang(struct dp_world *world, double seconds, double unseen_s)
{
    world->hang_s = seconds;
    if (world->watchdog != NULL) {
        dp_watchdog_set_timeout(world->watchdog, seconds);
        dp_watchdog_set_unseen(world->watchdog, unseen_s);
    }
}

void dp_world_on_hang(struct dp_world *world, dp_hang_hook *hook, void *context)
{
    if (world->detector != NULL) {
        dp_failure_detector_on_hang(world->detector, hook, context);
    }
}

void dp_world_on_loss(struct dp_world *world, dp_hang_hook *hook, void *context)
{
    if (world->detector != NULL) {
        dp_failure_detector_on_loss(world->detector, hook, context);
    }
}

/* The failure detector ends the job; peers need not report the death of this rank. */
static void end_job(int code)
{
    dp_world_farewell();
    dp_mpi_abort(code);
}

static struct dp_loss lost(void *liveness)
{
    return dp_liveness_lost(liveness);
}

/* An error here may be this rank's alone. */
static dp_status watch(struct dp_world *world)
{
    const bool launcher_ends = world->mpirun && dp_mpi_why_no_shrink() != NULL;
    struct dp_failure_detector_config config = {.cancel = world->all->cancel,
                                                .lost = lost,
                                                .shrinks = &world->shrinks,
                                                .launcher_s = launcher_ends ? MPIRUN_S : 0};
    dp_status status = DP_OK;

    status = dp_host_names_create(world->all, world->host, &world->hosts);
    if (status == DP_OK && world->all->size > 1) {
        status = dp_liveness_create(world->all, &world->liveness);
    }
    if (status == DP_OK && world->all->size > 1) {
        status = dp_liveness_watchdog(world->liveness, world->host, &world->watchdog);
    }
    if (status == DP_OK && world->all->size > 1) {
        status = dp_liveness_gather(world->liveness, world->hosts, &world->gather);
    }
    if (status == DP_OK) { /* that of a world that has lost ranks watched until now */
        dp_failure_detector_destroy(world->detector);
        world->detector = NULL;
    }
    if (status == DP_OK && world->all->size > 1) {
        config.watchdog = world->watchdog;
        config.gather = world->gather;
        config.context = world->liveness;
        config.abort = end_job;
        status = dp_failure_detector_create(&config, &world->detector);
    }
    if (status != DP_OK) {
        dp_group_leave(world->all, status);
        dp_hang_gather_destroy(world->gather);
        dp_watchdog_destroy(world->watchdog);
        dp_liveness_destroy(world->liveness);
        dp_host_names_destroy(world->hosts);
        dp_group_destroy(world->all);
    }
    return status;
}

/* NULL: the world ends now. */
static void set_world(struct dp_world *world)
{
    (void)pthread_mutex_lock(&farewell_mutex);
    the_world = world;
    if (world != NULL && asked_to_end) {
        dp_liveness_farewell(world->liveness);
    }
    (void)pthread_mutex_unlock(&farewell_mutex);
}

void dp_world_farewell(void)
{
    (void)pthread_mutex_lock(&farewell_mutex);
    asked_to_end = true;
    dp_start_watch_farewell();
    if (the_world != NULL) {
        dp_liveness_farewell(the_world->liveness);
    }
    (void)pthread_mutex_unlock(&farewell_mutex);
}

/* There is a group of all ranks; where this fails it is gone. */
static dp_status open_world(struct dp_world *world)
{
    const int size = world->all->size;
    dp_status status = DP_OK;

    dp_log_set_identity(world->all->rank, size, world->host);
    dp_free(world->first_rank_of);
    world->first_rank_of = dp_zalloc((size_t)size, sizeof(int));
    if (world->first_rank_of == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "world of %d ranks", size);
    } else if (world->mpi && everyone != MPI_COMM_NULL) {
        status = dp_mpi_ranks_in(everyone, size, MPI_COMM_WORLD, world->first_rank_of);
    }
    if (status != DP_OK) {
        dp_group_leave(world->all, status);
        dp_group_destroy(world->all);
    }
    DP_TRY(status);
    DP_TRY(watch(world));
    dp_world_unite(world);
    if (world->liveness != NULL) {
        dp_trace_publish(DP_TRACE_WATCHDOG, dp_liveness_mark(world->liveness));
    }
    set_world(world);
    dp_mpi_on_error(world->detector != NULL ? is_lost : NULL, world);
    return DP_OK;
}

static dp_status join(struct dp_world *world)
{
    dp_status status;

    if (dp_world_launch_rank() >= 0) {
        status = world_over_mpi(world);
    } else {
        (void)snprintf(world->library, sizeof(world->library), "no MPI");
        status = dp_local_alone(&world->all);
    }
    if (status == DP_OK && world->all->size == 1) {
        status = dp_launched_alone();
        if (status != DP_OK) {
            dp_group_destroy(world->all);
        }
    }
    return status == DP_OK ? open_world(world) : status;
}

dp_status dp_world_create(struct dp_world **out)
{
    struct dp_world *world = dp_zalloc(1, sizeof(*world));
    struct dp_start_watch *start;
    dp_status status;

    if (world == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "world");
    }
    (void)gethostname(world->host, sizeof(world->host) - 1);
    start = dp_start_watch_begin(world->host);
    status = join(world);
    dp_start_watch_end(start);
    if (status != DP_OK) {
        dp_free(world->first_rank_of);
        dp_free(world);
        return status;
    }
    *out = world;
    return DP_OK;
}

dp_status dp_world_group(struct dp_world *world, struct dp_group **out)
{
    return world->mpi ? dp_mpi_group_create(everyone, &world->cancel, out) : dp_local_alone(out);
}

dp_status dp_world_divide(struct dp_world *world, const struct dp_roles *roles)
{
    const int rank = world->all->rank;
    const bool shares = rank < dp_roles_sharing(roles);
    MPI_Comm some = MPI_COMM_NULL;
    dp_status status = DP_OK;

    world->roles = *roles;
    world->role = dp_role_of(roles, rank);
    if (!dp_roles_help(roles)) {
        return DP_OK;
    }
    world->train = NULL;
    DP_TRY(dp_mpi_part(everyone, shares, rank, &some));
    if (shares) {
        status = dp_mpi_group_create(some, &world->cancel, &world->train);
        (void)MPI_Comm_free(&some); /* the group has a copy */
    }
    return status;
}

void dp_world_unite(struct dp_world *world)
{
    if (world->train != world->all) {
        dp_group_destroy(world->train);
    }
    world->train = world->all;
    world->roles = (struct dp_roles){.count = {[DP_ROLE_TRAIN] = world->all->size}};
    world->role = DP_ROLE_TRAIN;
}

dp_status dp_world_meet(struct dp_world *world, const char *asked, dp_status mine,
                        bool *must_report)
{
    const struct dp_consistency_item item = dp_consistency_text("to do", asked);
    int first = (int)mine;

    *must_report = false;
    DP_TRY(dp_group_broadcast(world->all, &first, sizeof(first), 0));
    *must_report = mine != DP_OK && first == (int)DP_OK;
    DP_TRY(dp_group_agree(world->all, mine));
    return dp_consistency_check(world->all, &item, 1);
}

/* ---- ranks that are lost ---- */

const char *dp_world_why_no_shrink(const struct dp_world *world)
{
    return world->mpi ? dp_mpi_why_no_shrink() : NULL;
}

void dp_world_allow_shrink(struct dp_world *world, bool on)
{
    atomic_store(&world->shrinks, on && dp_world_why_no_shrink(world) == NULL);
}

bool dp_world_lost(struct dp_world *world)
{
    struct dp_backoff backoff = {.spin_ns = 0};
    MPI_Comm comm = MPI_COMM_NULL;
    bool lost = false;

    if (!world->mpi || !atomic_load(&world->shrinks)) {
        return false;
    }
    dp_group_leave(world->all, DP_ERR_INTERNAL);
    /* Only one thread at a time may be inside MPI. */
    if (!dp_engines_rest(rest_ns) || dp_mpi_comm_open(world->all, &comm) != DP_OK) {
        return false;
    }
    while (!lost && backoff.waited_ns < find_ns) {
        lost = dp_failure_detector_lost(world->detector) || dp_mpi_has_lost(comm);
        (void)dp_backoff_wait(&backoff);
    }
    if (lost) {
        dp_failure_detector_expect_end(world->detector);
        dp_mpi_group_revoke(world->all);
    }
    return lost;
}

static dp_status note_loss(const struct dp_world *world, MPI_Comm before, MPI_Comm after,
                           struct dp_world_loss *loss)
{
    const int size = world->all->size;
    int *now = dp_zalloc((size_t)size, sizeof(*now));
    dp_status status;

    if (now == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "ranks that are left of %d", size);
    }
    loss->count = loss->left = 0;
    status = dp_mpi_ranks_in(before, size, after, now);
    for (int i = 0; i < size && status == DP_OK; i++) {
        loss->left += now[i] >= 0;
        if (now[i] < 0 && loss->count < DP_WORLD_LOST_MOST) {
            loss->ranks[loss->count++] = world->first_rank_of[i];
        }
    }
    dp_free(now);
    return status;
}

/* What watched the ranks of the old world, but its failure detector; and its group, from which no
 * rank is waited for. */
static void leave_behind(struct dp_world *world)
{
    static atomic_int over = 1;

    world->all->cancel = &over;
    dp_hang_gather_destroy(world->gather);
    dp_watchdog_destroy(world->watchdog);
    dp_liveness_destroy(world->liveness);
    dp_host_names_destroy(world->hosts);
    dp_group_destroy(world->all);
    world->hosts = NULL;
    world->gather = NULL;
    world->watchdog = NULL;
    world->liveness = NULL;
    world->all = world->train = NULL;
}

/* Of the ranks of `after` those that go on; MPI_COMM_NULL on the others. */
static dp_status choose(MPI_Comm after, int size, int lanes, MPI_Comm *out)
{
    const int most = dp_world_fitting(size, lanes);
    int rank = 0;

    *out = after;
    if (most == size) {
        return DP_OK;
    }
    DP_TRY(DP_MPI(MPI_Comm_rank(after, &rank)));
    return dp_mpi_part(after, rank < most, rank, out);
}

static dp_status shrink(struct dp_world *world, int lanes, struct dp_world_loss *loss)
{
    MPI_Comm before = MPI_COMM_NULL, after = MPI_COMM_NULL;

    DP_TRY(dp_mpi_comm_open(world->all, &before));
    DP_TRY(dp_mpi_shrink(before, &after));
    DP_TRY(note_loss(world, before, after, loss));
    set_world(NULL);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    leave_behind(world);
    dp_left_memory_drop();
    atomic_store(&world->cancel, 0);
    DP_TRY(choose(after, loss->left, lanes, &everyone));
    DP_TRY(everyone == MPI_COMM_NULL ? dp_local_alone(&world->all)
                                     : dp_mpi_group_create(everyone, &world->cancel, &world->all));
    return open_world(world);
}

bool dp_world_shrink(struct dp_world *world, int lanes, struct dp_world_loss *loss)
{
    const bool reports = dp_liveness_lost(world->liveness).reports;

    if (shrink(world, lanes, loss) != DP_OK) {
        if (reports) {
            dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
                   "another rank has died before the others could go on without the first: the "
                   "job ends, start it again with --resume");
        }
        end_job(dp_status_exit(DP_ERR_HUNG));
    }
    return everyone != MPI_COMM_NULL;
}

/* Where ranks were lost. MPI_Finalize may wait for ever if one dies in it, and takes a core (Open
 * MPI 5.0.11); so this process just ends. The others may still wait for the last message. */
static void leave_mpi(struct dp_world *world)
{
    if (dp_group_barrier(world->all) != DP_OK) {
        DP_DEBUG("another rank has left already");
    }
    dp_world_farewell();
    atomic_store(&world->cancel, 1); /* nothing is released together */
}

void dp_world_destroy(struct dp_world *world)
{
    const bool shrunk = everyone != MPI_COMM_WORLD;
    struct dp_last_watch *last = NULL;

    if (world == NULL) {
        return;
    } else if (shrunk) {
        leave_mpi(world);
    } else {
        last = dp_liveness_meet(world->liveness, world->host, world->hang_s);
    }
    if (dp_failure_detector_hung(world->detector)) { /* nothing is left but to end */
        end_job(dp_status_exit(DP_ERR_HUNG));
    }
    set_world(NULL);
    dp_mpi_on_error(NULL, NULL);
    dp_failure_detector_destroy(world->detector); /* from here on ranks may end: no error */
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    dp_hang_gather_destroy(world->gather);
    dp_watchdog_destroy(world->watchdog);
    dp_liveness_destroy(world->liveness);
    dp_host_names_destroy(world->hosts);
    dp_world_unite(world);
    dp_group_destroy(world->all);
    if (world->mpi && !shrunk) {
        dp_mpi_end();
    }
    dp_last_watch_end(last);
    dp_free(world->first_rank_of);
    dp_free(world);
}

void dp_world_abort(struct dp_world *world, int code)
{
    if (world != NULL && world->mpi && world->all->size > 1) {
        dp_failure_detector_stand_by(world->detector);
        dp_liveness_farewell(world->liveness); /* waiting peers then know that the error is
                                                * reported */
        dp_group_leave(world->all, DP_ERR_INTERNAL);
        /* Only one thread at a time may be inside MPI. If the engine's thread does not return
         * (MPI_Allreduce checks no flag), there is no other way to end all ranks. */
        (void)dp_engines_rest(rest_ns);
        dp_mpi_abort(dp_failure_detector_hung(world->detector) ? dp_status_exit(DP_ERR_HUNG)
                                                               : code);
    }
}
