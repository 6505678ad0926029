#include "collectives/core/clock.h"

#include "collectives/core/backoff.h"

enum { ROUND_TRIPS = 16 };

/* What rank 0 finds out about the clock of a host. */
struct comparison {
    uint64_t at_ns; /* by that clock */
    int64_t ahead_ns;
    uint64_t error_ns;
};

static const struct dp_slice nothing = {NULL, 0, 1};

/* The first rank of a node; the group's size: there is no such node. */
static int first_of(const struct dp_group *group, int node)
{
    int rank = 0;

    while (rank < group->size && group->node_of[rank] != node) {
        rank++;
    }
    return rank;
}

/* Rank 0: asks `rank` for its time. */
static dp_status ask(struct dp_group *group, uint64_t (*now)(void), int rank,
                     struct comparison *best)
{
    uint64_t question = 0, theirs = 0;

    for (int i = 0; i < ROUND_TRIPS; i++) {
        const struct dp_slice out = {&question, 1, sizeof(question)};
        const struct dp_slice in = {&theirs, 1, sizeof(theirs)};
        const uint64_t begin_ns = now();
        uint64_t error_ns;

        DP_TRY(dp_group_exchange(group, rank, out, -1, nothing));
        DP_TRY(dp_group_exchange(group, -1, nothing, rank, in));
        error_ns = (now() - begin_ns) / 2;
        if (i == 0 || error_ns < best->error_ns) {
            best->at_ns = theirs;
            best->error_ns = error_ns;
            best->ahead_ns = (int64_t)(theirs - (begin_ns + error_ns));
        }
    }
    return DP_OK;
}

static dp_status answer(struct dp_group *group, uint64_t (*now)(void))
{
    uint64_t question = 0, mine = 0;

    for (int i = 0; i < ROUND_TRIPS; i++) {
        const struct dp_slice in = {&question, 1, sizeof(question)};
        const struct dp_slice out = {&mine, 1, sizeof(mine)};

        DP_TRY(dp_group_exchange(group, -1, nothing, 0, in));
        mine = now();
        DP_TRY(dp_group_exchange(group, 0, out, -1, nothing));
    }
    return DP_OK;
}

/* One host after another; all ranks get what rank 0 has found. */
static dp_status compare(struct dp_group *group, uint64_t (*now)(void), struct comparison *found)
{
    for (int node = 1; node < group->nodes; node++) {
        const int first = first_of(group, node);

        if (group->rank == 0) {
            DP_TRY(ask(group, now, first, &found[node]));
        } else if (group->rank == first) {
            DP_TRY(answer(group, now));
        }
    }
    return dp_group_broadcast(group, found, (size_t)group->nodes * sizeof(*found), 0);
}

dp_status dp_clock_mark(struct dp_clock *clock, struct dp_group *group, uint64_t (*now)(void))
{
    const uint64_t spin_ns = group->spin_ns;
    const int at = clock->marks > 0 ? 1 : 0;
    struct comparison *found = dp_zalloc((size_t)group->nodes, sizeof(*found));
    dp_status status = found == NULL ? DP_FAIL(DP_ERR_NOMEM, "clocks") : DP_OK;

    if (group->nodes > 1) {
        DP_TRY_GOTO(dp_group_agree(group, status), status, done);
    }
    if (group->nodes > 1 && found != NULL) {
        group->spin_ns = DP_SPIN_NS; /* a round trip without a sleep says more */
        status = compare(group, now, found);
        group->spin_ns = spin_ns;
    }
    if (status == DP_OK && found != NULL) {
        const struct comparison *mine = &found[group->node_of[group->rank]];

        clock->at_ns[at] = mine->at_ns != 0 ? mine->at_ns : now(); /* on the host of rank 0 */
        clock->ahead_ns[at] = mine->ahead_ns;
        clock->error_ns[at] = mine->error_ns;
        clock->marks = at + 1;
    }

done:
    dp_free(found);
    return status;
}

uint64_t dp_clock_shared(const struct dp_clock *clock, uint64_t own_ns)
{
    double drift = 0.0;

    if (clock->marks == 2 && clock->at_ns[1] > clock->at_ns[0]) {
        drift = (double)(clock->ahead_ns[1] - clock->ahead_ns[0]) /
                (double)(clock->at_ns[1] - clock->at_ns[0]);
    }
    /* Differences to the first mark: a clock that is days ahead leaves nanoseconds exact. */
    return own_ns - (uint64_t)clock->ahead_ns[0] -
           (uint64_t)(int64_t)(drift * (double)(int64_t)(own_ns - clock->at_ns[0]));
}
