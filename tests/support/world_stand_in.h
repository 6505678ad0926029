/*
 * world_stand_in.h - functions in the place of MPI's and of those that watch over ranks, for one
 * test program of a world: of a rank of four, of which rank 1 may be lost.
 */
#ifndef DP_TESTS_SUPPORT_WORLD_STAND_IN_H
#define DP_TESTS_SUPPORT_WORLD_STAND_IN_H

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/core/mpi/left_memory.h"
#include "collectives/core/mpi/start_mpi.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/shrink_mpi.h"
#include "collectives/core/transport.h"
#include "collectives/core/transport_mpi.h"
#include "collectives/world/failure_detector.h"
#include "collectives/world/host_names.h"
#include "collectives/world/last_watch.h"
#include "collectives/world/liveness.h"
#include "collectives/world/start_watch.h"
#include "collectives/world/world.h"
#include "tests/support/arrays.h"

enum { RANKS = 4, LEFT = 3, TENTH_NS = 100000000 };

/* ---- what was called, in order ---- */

static struct {
    char calls[2048];
    int failing;           /* which of those that watch cannot be created; -1: none */
    const char *no_shrink; /* why ranks cannot go on without one; NULL: they can */
    int rank;              /* of those that are left */
    bool shrink_fails;
    int threads;            /* the level that MPI offers */
    const atomic_int *left; /* not 0: this rank has left the newest group */
    struct dp_failure_detector_config config;
    dp_mpi_loss_hook *hook;
    void *context;
    bool hung, lost, reports;
    uint64_t ends_ns, cancel_ns; /* the time waited at which that comes; 0: never */
    uint64_t waited_ns;
    struct dp_world *world;
    struct dp_trace_mark mark;
} fake;

/* Addresses that nobody looks at. */
static char liveness, watchdog, gather, detector, names, last, starting;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    const size_t used = strlen(fake.calls);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(fake.calls + used, sizeof(fake.calls) - used, format, args);
    va_end(args);
}

static void check_calls(const char *wanted)
{
    assert_string_equal(fake.calls, wanted);
    fake.calls[0] = '\0';
}

static dp_status made(int which, const char *what, void *thing, void *out)
{
    note("%s; ", what);
    if (fake.failing == which) {
        return DP_ERR_NOMEM;
    }
    memcpy(out, &thing, sizeof(thing));
    return DP_OK;
}

static void unmade(const char *what, const void *thing)
{
    if (thing != NULL) {
        note("no %s; ", what);
    }
}

/* ---- MPI ---- */

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    note("%s", comm == MPI_COMM_WORLD && handler == MPI_ERRORS_RETURN ? "errors return; " : "?");
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    (void)comm;
    *rank = fake.rank;
    return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    *comm = MPI_COMM_NULL;
    note("no part; ");
    return MPI_SUCCESS;
}

DP_CHECKED dp_status dp_from_mpi(const char *file, int line, const char *call, int code)
{
    (void)file, (void)line, (void)call;
    return code == MPI_SUCCESS ? DP_OK : DP_ERR_MPI;
}

DP_CHECKED dp_status dp_mpi_count(size_t count, int *out)
{
    *out = (int)count;
    return DP_OK;
}

void dp_mpi_on_error(dp_mpi_loss_hook *is_lost, void *context)
{
    fake.hook = is_lost;
    fake.context = context;
}

void dp_mpi_abort(int code)
{
    note("abort %d; ", code);
}

DP_CHECKED dp_status dp_mpi_start(int *provided)
{
    *provided = fake.threads;
    return DP_OK;
}

void dp_mpi_end(void)
{
    note("no mpi; ");
}

void dp_mpi_fabric(int nodes, char text[DP_FABRIC_BYTES])
{
    (void)snprintf(text, DP_FABRIC_BYTES, "%d nodes", nodes);
}

void dp_mpi_library(char *text, size_t size)
{
    (void)snprintf(text, size, "a stand-in");
}

/* Of all ranks, of those that are left, and of a part of these. */
static int size_of(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD ? RANKS : comm == MPI_COMM_SELF ? LEFT : LEFT - 1;
}

DP_CHECKED dp_status dp_mpi_group_create(MPI_Comm comm, atomic_int *cancel, struct dp_group **out)
{
    DP_TRY(dp_local_alone(out));
    (*out)->size = size_of(comm);
    fake.left = (*out)->cancel;
    (*out)->cancel = cancel;
    return DP_OK;
}

static MPI_Comm part(void)
{
    const union {
        uint64_t number;
        MPI_Comm comm;
    } any = {1};

    return any.comm;
}

DP_CHECKED dp_status dp_mpi_part(MPI_Comm comm, bool in, int rank, MPI_Comm *out)
{
    note("part of %d: %d %s; ", size_of(comm), rank, in ? "in" : "out");
    *out = in ? part() : MPI_COMM_NULL;
    return DP_OK;
}

bool dp_mpi_connects(const struct dp_group *group)
{
    (void)group;
    return true;
}

DP_CHECKED dp_status dp_mpi_comm_open(const struct dp_group *group, MPI_Comm *out)
{
    (void)group;
    *out = MPI_COMM_WORLD;
    return DP_OK;
}

void dp_mpi_comm_close(const struct dp_group *group, MPI_Comm comm)
{
    (void)group, (void)comm;
}

void dp_mpi_group_revoke(struct dp_group *group)
{
    (void)group;
    note("revoke; ");
}

DP_CHECKED dp_status dp_mpi_wait(const struct dp_group *group, MPI_Request *request)
{
    (void)group, (void)request;
    return DP_OK;
}

const char *dp_mpi_why_no_shrink(void)
{
    return fake.no_shrink;
}

bool dp_mpi_is_loss(int code)
{
    return code != MPI_SUCCESS;
}

bool dp_mpi_may_be_loss(int code)
{
    return code != MPI_SUCCESS;
}

bool dp_mpi_has_lost(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD && fake.ends_ns > 0 && fake.waited_ns >= fake.ends_ns;
}

void dp_mpi_revoke(MPI_Comm comm)
{
    (void)comm;
}

DP_CHECKED dp_status dp_mpi_shrink(MPI_Comm comm, MPI_Comm *out)
{
    *out = MPI_COMM_SELF;
    return comm != MPI_COMM_WORLD || fake.shrink_fails ? DP_ERR_MPI : DP_OK;
}

bool dp_mpi_agree(MPI_Comm comm, bool mine)
{
    (void)comm;
    return mine;
}

/* Rank 1 is lost. */
DP_CHECKED dp_status dp_mpi_ranks_in(MPI_Comm few, int size, MPI_Comm many, int *rank_of)
{
    for (int i = 0; i < size; i++) {
        const int left = i == 1 ? -1 : i - (i > 1), first = i + (i > 0);
        rank_of[i] = few == many ? i : few == MPI_COMM_WORLD ? left : first;
    }
    return DP_OK;
}

void dp_left_memory_add(void *begin, size_t bytes)
{
    (void)begin, (void)bytes;
}

void dp_left_memory_drop(void)
{
    note("drop; ");
}

/* ---- those that watch ---- */

struct dp_start_watch *dp_start_watch_begin(const char *host)
{
    assert_true(host[0] != '\0');
    return (void *)&starting;
}

void dp_start_watch_farewell(void)
{
    note("start farewell; ");
}

void dp_start_watch_end(struct dp_start_watch *watch)
{
    assert_ptr_equal(watch, &starting);
    note("started; ");
}

DP_CHECKED dp_status dp_host_names_create(struct dp_group *group, const char *own,
                                          struct dp_host_names **out)
{
    assert_true(group->size == 1 || own[0] != '\0');
    return made(0, "names", &names, out);
}

const char *dp_host_names_of(const struct dp_host_names *n, int rank)
{
    (void)n, (void)rank;
    return "h";
}

void dp_host_names_destroy(struct dp_host_names *n)
{
    unmade("names", n);
}

DP_CHECKED dp_status dp_liveness_create(struct dp_group *group, struct dp_liveness **out)
{
    assert_true(group->size > 1);
    return made(1, "liveness", &liveness, out);
}

DP_CHECKED dp_status dp_liveness_watchdog(const struct dp_liveness *l, const char *host,
                                          struct dp_watchdog **out)
{
    assert_true(l == (void *)&liveness && host[0] != '\0');
    return made(2, "watchdog", &watchdog, out);
}

DP_CHECKED dp_status dp_liveness_gather(struct dp_liveness *l, const struct dp_host_names *n,
                                        struct dp_hang_gather **out)
{
    assert_true(l == (void *)&liveness && n == (void *)&names);
    return made(3, "gather", &gather, out);
}

DP_CHECKED dp_status dp_failure_detector_create(const struct dp_failure_detector_config *config,
                                                struct dp_failure_detector **out)
{
    fake.config = *config;
    return made(4, "detector", &detector, out);
}

void dp_liveness_allow_outage(struct dp_liveness *l, int seconds)
{
    assert_ptr_equal(l, &liveness);
    note("outage %d; ", seconds);
}

struct dp_trace_mark *dp_liveness_mark(const struct dp_liveness *l)
{
    return l == (void *)&liveness ? &fake.mark : NULL;
}

struct dp_one_speaker *dp_liveness_speaker(const struct dp_liveness *l)
{
    (void)l;
    return NULL;
}

struct dp_last_watch *dp_liveness_meet(const struct dp_liveness *l, const char *host,
                                       double timeout_s)
{
    assert_true(host[0] != '\0');
    note("meet %g; ", timeout_s);
    return l != NULL ? (void *)&last : NULL;
}

struct dp_loss dp_liveness_lost(struct dp_liveness *l)
{
    assert_ptr_equal(l, &liveness);
    return (struct dp_loss){.rank = 1, .reports = fake.reports};
}

void dp_liveness_farewell(struct dp_liveness *l)
{
    assert_true(l == NULL || l == (void *)&liveness);
    note("%s", l != NULL ? "farewell; " : "");
}

void dp_liveness_destroy(struct dp_liveness *l)
{
    unmade("liveness", l);
}

void dp_watchdog_set_timeout(struct dp_watchdog *w, double seconds)
{
    assert_ptr_equal(w, &watchdog);
    note("timeout %g; ", seconds);
}

void dp_watchdog_set_unseen(struct dp_watchdog *w, double seconds)
{
    assert_ptr_equal(w, &watchdog);
    note("unseen %g; ", seconds);
}

void dp_watchdog_allow_outage(struct dp_watchdog *w, int seconds)
{
    assert_ptr_equal(w, &watchdog);
    note("of watchdog %d; ", seconds);
}

void dp_watchdog_destroy(struct dp_watchdog *w)
{
    unmade("watchdog", w);
}

void dp_hang_gather_destroy(struct dp_hang_gather *g)
{
    unmade("gather", g);
}

void dp_failure_detector_on_hang(struct dp_failure_detector *d, dp_hang_hook *hook, void *context)
{
    assert_true(d == (void *)&detector && hook != NULL && context == &fake);
    note("on hang; ");
}

void dp_failure_detector_on_loss(struct dp_failure_detector *d, dp_hang_hook *hook, void *context)
{
    assert_true(d == (void *)&detector && hook != NULL && context == &fake);
    note("on loss; ");
}

void dp_failure_detector_stand_by(const struct dp_failure_detector *d)
{
    assert_ptr_equal(d, &detector);
    note("stand by; ");
}

bool dp_failure_detector_hung(const struct dp_failure_detector *d)
{
    return d != NULL && fake.hung;
}

bool dp_failure_detector_lost(const struct dp_failure_detector *d)
{
    return d != NULL && fake.lost;
}

bool dp_failure_detector_ends(const struct dp_failure_detector *d)
{
    return d != NULL && fake.ends_ns > 0 && fake.waited_ns >= fake.ends_ns;
}

void dp_failure_detector_expect_end(struct dp_failure_detector *d)
{
    assert_ptr_equal(d, &detector);
    note("expect end; ");
}

void dp_failure_detector_destroy(struct dp_failure_detector *d)
{
    unmade("detector", d);
}

void dp_last_watch_end(struct dp_last_watch *watch)
{
    unmade("last", watch);
}

/* ---- time, by this test ---- */

bool dp_backoff_wait(struct dp_backoff *b)
{
    b->waited_ns += TENTH_NS;
    fake.waited_ns = b->waited_ns;
    if (fake.cancel_ns > 0 && fake.waited_ns >= fake.cancel_ns) {
        atomic_store(&fake.world->cancel, 1);
    }
    return b->cancel == NULL || atomic_load(b->cancel) == 0;
}

uint64_t dp_backoff_sleep_ns(const struct dp_backoff *b)
{
    (void)b;
    return 0;
}

uint64_t dp_wire_pace_expect(const struct dp_wire_pace *pace, uint64_t bytes)
{
    (void)pace, (void)bytes;
    return 0;
}

void dp_wire_pace_note(struct dp_wire_pace *pace, uint64_t bytes, uint64_t begin_ns)
{
    (void)pace, (void)bytes, (void)begin_ns;
}

#endif
