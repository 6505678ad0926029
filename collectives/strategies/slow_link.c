#include "collectives/strategies/slow_link.h"

#include <math.h>
#include <string.h>

#include "base/statistics.h"
#include "base/trace.h"

enum {
    TURNS = 3,
    BYTES_LEAST = 256 << 10, /* more than a burst that an idle wire lets pass at once */
    BYTES_MOST = 4 << 20,
    ROW_MOST = 16,  /* messages of a turn, on links that are fast */
    MANY_NODES = 4, /* where more than one of so many is slow, none is the slow one */
};

static const double slow_ratio = 2.0;
static const double turn_least_s = 0.01; /* ranks begin a turn less than a millisecond apart */

int dp_slow_link_rounds(int nodes)
{
    int rounds = 0;

    while (nodes > 2 && 1 << rounds < nodes) {
        rounds++;
    }
    return rounds;
}

/* ---- finding it ---- */

/* What was measured; and the slowest link so far. */
struct search {
    const double *seconds;
    int nodes, rounds;
    double limit_s;
    int count; /* of what is slow */
    struct dp_slow_link *out;
};

static int sender_of(const struct search *s, int round, int node)
{
    return (node - (1 << round) % s->nodes + s->nodes) % s->nodes;
}

/* The fastest of what a node receives, or of what it sends. */
static double fastest(const struct search *s, int node, bool receives)
{
    double least = (double)INFINITY;

    for (int k = 0; k < s->rounds; k++) {
        const int at = receives ? node : (node + (1 << k)) % s->nodes;
        least = fmin(least, s->seconds[(size_t)k * (size_t)s->nodes + (size_t)at]);
    }
    return least;
}

static void note(struct search *s, int from, int to, double seconds)
{
    s->count++;
    if (!s->out->found || seconds > s->out->slow_s) {
        s->out->found = true;
        s->out->from = from;
        s->out->to = to;
        s->out->slow_s = seconds;
    }
}

/* Nodes all of whose links are slow, one way or both. */
static void find_nodes(struct search *s)
{
    for (int node = 0; node < s->nodes; node++) {
        const double in = fastest(s, node, true), out = fastest(s, node, false);

        if (in > s->limit_s || out > s->limit_s) {
            note(s, out > s->limit_s ? node : -1, in > s->limit_s ? node : -1, fmax(in, out));
        }
    }
}

static void find_pairs(struct search *s)
{
    for (int k = 0; k < s->rounds; k++) {
        for (int node = 0; node < s->nodes; node++) {
            const double seconds = s->seconds[(size_t)k * (size_t)s->nodes + (size_t)node];
            if (seconds > s->limit_s) {
                note(s, sender_of(s, k, node), node, seconds);
            }
        }
    }
}

dp_status dp_slow_link_find(const double *seconds, int nodes, double bytes,
                            struct dp_slow_link *out)
{
    const int rounds = dp_slow_link_rounds(nodes);
    const size_t links = (size_t)rounds * (size_t)nodes;
    struct search s = {.seconds = seconds, .nodes = nodes, .rounds = rounds, .out = out};
    double *sorted;

    *out = (struct dp_slow_link){.from = -1, .to = -1, .bytes = bytes};
    if (links == 0) {
        return DP_OK;
    }
    sorted = dp_zalloc(links, sizeof(*sorted));
    if (sorted == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "comparing the links of %d nodes", nodes);
    }
    memcpy(sorted, seconds, links * sizeof(*sorted));
    dp_sort(sorted, links);
    out->others_s = sorted[(links - 1) / 4]; /* of 3 nodes, one slow: 4 of 6 links are its own */
    s.limit_s = slow_ratio * out->others_s;
    dp_free(sorted);
    find_nodes(&s);
    if (s.count == 0) {
        find_pairs(&s);
    }
    out->found = out->found && (s.count == 1 || s.count <= nodes / MANY_NODES);
    return DP_OK;
}

/* ---- measuring ---- */

struct probe {
    struct dp_group *group;
    bool leads; /* this rank sends and receives for its node */
    int rounds, row;
    size_t bytes;
    char *memory;       /* owned; [2 * bytes] of leaders: what is sent, what comes */
    double *mine, *all; /* owned; [rounds] and of the last row, [size * rounds]: seconds */
};

/* Until this node has its message, while it sends one. */
static dp_status send_row(struct probe *p, int to, int from)
{
    const struct dp_slice out = {p->memory, p->bytes, 1}, in = {p->memory + p->bytes, p->bytes, 1};
    struct dp_transfer sent[ROW_MOST], came;
    const uint64_t begin_ns = dp_now_ns();

    for (int i = 0; i < p->row; i++) {
        DP_TRY(dp_group_start(p->group, to, out, -1, in, &sent[i]));
    }
    for (int i = 0; i < p->row; i++) {
        DP_TRY(dp_group_start(p->group, -1, out, from, in, &came));
        DP_TRY(dp_group_finish(p->group, &came));
    }
    p->mine[p->rounds] = (double)(dp_now_ns() - begin_ns) / 1e9 / p->row;
    for (int i = 0; i < p->row; i++) {
        DP_TRY(dp_group_finish(p->group, &sent[i]));
    }
    return DP_OK;
}

/* A round: the best of this turn and those before. */
static dp_status measure_round(struct probe *p, int round)
{
    const struct dp_group *group = p->group;
    const int nodes = group->nodes, node = group->node_of[group->rank];
    const int step = (1 << round) % nodes;
    double *best = &p->mine[round];

    DP_TRY(dp_group_barrier(p->group));
    if (p->leads) {
        DP_TRY(send_row(p, dp_group_leader(group, (node + step) % nodes),
                        dp_group_leader(group, (node - step + nodes) % nodes)));
        *best = *best > 0.0 ? fmin(*best, p->mine[p->rounds]) : p->mine[p->rounds];
    }
    return DP_OK;
}

static dp_status measure_rounds(struct probe *p)
{
    for (int turn = 0; turn < TURNS; turn++) {
        for (int k = 0; k < p->rounds; k++) {
            DP_TRY(measure_round(p, k));
            dp_trace_beat();
        }
    }
    return DP_OK;
}

/* Gathers the leaders' times as dp_slow_link_find() takes them, in place of `all`. */
static dp_status compare(struct probe *p, double *seconds, struct dp_slow_link *out)
{
    const struct dp_group *group = p->group;

    DP_TRY(dp_group_allgather(p->group, p->mine, (size_t)p->rounds * sizeof(double), p->all));
    for (int r = group->size - 1; r >= 0; r--) { /* the first rank of a node leads it */
        for (int k = 0; k < p->rounds; k++) {
            seconds[(size_t)k * (size_t)group->nodes + (size_t)group->node_of[r]] =
                p->all[(size_t)r * (size_t)p->rounds + (size_t)k];
        }
    }
    return dp_slow_link_find(seconds, group->nodes, (double)p->bytes, out);
}

/* Messages so long that all turns of all rounds, and those of a second measurement, fit into the
 * time; and as many of them in a row as a fast link needs. */
static void choose_sizes(struct probe *p, const struct dp_cost *cost, double seconds)
{
    const struct dp_curve *wire = &cost->exchange[DP_LINK_WIRE];
    const double turn_s = seconds / (2.0 * TURNS * p->rounds);
    const double fits = turn_s / dp_curve_at(wire, BYTES_LEAST) * BYTES_LEAST;
    const double least = BYTES_LEAST, most = BYTES_MOST;

    p->bytes = (size_t)fmin(fmax(fits, least), most) / DP_MEM_ALIGN * DP_MEM_ALIGN;
    p->row = (int)fmin(ceil(turn_least_s / dp_curve_at(wire, (double)p->bytes)), ROW_MOST);
}

/* Once all have met. */
static dp_status measure(struct probe *p, double budget_s, double *seconds,
                         struct dp_slow_link *out)
{
    const uint64_t spin_ns = p->group->spin_ns;
    dp_status status;

    DP_EXPECT(budget_s);
    p->group->spin_ns = p->leads ? spin_ns : 0; /* the others sleep meanwhile */
    status = measure_rounds(p);
    status = status == DP_OK ? compare(p, seconds, out) : status;
    if (status == DP_OK && out->found) {
        status = measure_rounds(p);
        status = status == DP_OK ? compare(p, seconds, out) : status;
    }
    p->group->spin_ns = spin_ns;
    return status;
}

dp_status dp_slow_link_measure(struct dp_group *group, const struct dp_cost *cost, double seconds,
                               struct dp_slow_link *out)
{
    struct probe p = {.group = group, .rounds = dp_slow_link_rounds(group->nodes)};
    double *table;
    dp_status status;

    *out = (struct dp_slow_link){.from = -1, .to = -1};
    if (p.rounds == 0 || cost->exchange[DP_LINK_WIRE].count == 0) {
        return DP_OK;
    }
    p.leads = dp_group_leader(group, group->node_of[group->rank]) == group->rank;
    choose_sizes(&p, cost, seconds);
    p.memory = p.leads ? dp_zalloc(2, p.bytes) : NULL;
    p.mine = dp_zalloc((size_t)p.rounds + 1, sizeof(double));
    p.all = dp_zalloc((size_t)group->size * (size_t)p.rounds, sizeof(double));
    table = dp_zalloc((size_t)group->nodes * (size_t)p.rounds, sizeof(double));
    status = (p.leads && p.memory == NULL) || p.mine == NULL || p.all == NULL || table == NULL
                 ? DP_FAIL(DP_ERR_NOMEM, "comparing the links of %d nodes", group->nodes)
                 : DP_OK;
    status = dp_group_agree(group, status);
    if (status == DP_OK && p.mine != NULL && p.all != NULL && table != NULL) {
        status = measure(&p, seconds, table, out);
        dp_group_leave(group, status);
    }
    dp_free(table);
    dp_free(p.all);
    dp_free(p.mine);
    dp_free(p.memory);
    return status;
}

void dp_slow_link_mend(const struct dp_slow_link *link, struct dp_cost *cost)
{
    struct dp_curve *wire = &cost->exchange[DP_LINK_WIRE];
    const double middle_s = sqrt(link->slow_s * link->others_s);

    if (!link->found || dp_curve_at(wire, link->bytes) < middle_s) {
        return;
    }
    for (int i = 1; i < wire->count; i++) {
        wire->seconds[i] = wire->seconds[0] + fmax(wire->seconds[i] - wire->seconds[0], 0.0) *
                                                  link->others_s / link->slow_s;
    }
}
