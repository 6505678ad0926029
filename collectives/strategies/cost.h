/*
 * cost.h - how long sharing should take, predicted from what links and memory were measured to do.
 *
 * A message of n bytes takes alpha + beta n, adding n bytes takes gamma n; whole algorithms follow
 * in closed form. On real machines beta is no constant: short and long messages go different ways,
 * and buffers fit into one cache or another. So what was measured is kept as curves, points with
 * straight lines between them, each of which is an alpha and a beta of its own; predictions read
 * the curves. One alpha, beta and gamma are fitted through them as well, for people.
 *
 * Sources: Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994), section 2
 * (alpha, beta); Thakur, Rabenseifner and Gropp, "Optimization of collective communication
 * operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), sections 3 and 4 (gamma,
 * algorithms); Kielmann, Bal and Verstoep, "Fast measurement of LogP parameters for message
 * passing platforms", IPDPS workshops 2000 (parameters that depend on the size).
 */
#ifndef DP_COLLECTIVES_STRATEGIES_COST_H
#define DP_COLLECTIVES_STRATEGIES_COST_H

#include "collectives/core/group.h"

enum { DP_CURVE_POINTS = 16 };

/* Seconds of an operation as a function of its bytes; points in rising order of bytes. */
struct dp_curve {
    int count;
    double bytes[DP_CURVE_POINTS], seconds[DP_CURVE_POINTS];
};

enum dp_link { DP_LINK_NODE, DP_LINK_WIRE /* between nodes */, DP_LINK_COUNT };

struct dp_cost {
    /* Every rank sends n bytes to one neighbour while it receives n from another: on the node, all
     * of its ranks at once; on the wire, one rank of each node, as part of a row of such messages.
     * A link without points: no such. */
    struct dp_curve exchange[DP_LINK_COUNT];
    struct dp_curve
        add; /* on the node: the same, but what comes in is added (dp_segmented_add), which
                              hides behind what is under way. Without points: exchange and sum */
    struct dp_curve whole; /* on the node: as exchange, but in one message however long it is, as
                              MPI's own algorithms send */
    struct dp_curve sum;   /* y += x of n bytes each, on all ranks at once */
    struct dp_curve copy;  /* y = x, likewise */
    struct dp_curve peer; /* y += x where y lies with another rank of the node, likewise; up to what
                             there was room to share, without points where there was none */
    double flags_s;       /* a barrier of the node's ranks over flags in shared memory; only where
                             peer has points */
    double alpha[DP_LINK_COUNT], beta[DP_LINK_COUNT]; /* s, s/byte; fitted through exchange */
    double gamma;                                     /* s/byte; fitted through sum */
};

/* Seconds for `bytes`: on the lines between points; below the first point its time; behind the last
 * one its time a byte, but for the time of the first point, which does not grow. 0 without
 * points. */
double dp_curve_at(const struct dp_curve *curve, double bytes);

/* The alpha and beta, at least 0, that fit the curve best, in squares of relative errors. Both are
 * 0 without points; alpha is 0 with one. */
void dp_curve_fit(const struct dp_curve *curve, double *alpha, double *beta);

/* Fills in alpha, beta and gamma from the curves. */
void dp_cost_fit(struct dp_cost *cost);

/*
 * Measures all curves, up to max_bytes, in about `seconds`; the same numbers on every rank. Each
 * point is the median of several turns, a turn takes as long as its slowest rank, and buffers are
 * written anew before every turn. group->stream must be set. Collective; no engine may own the
 * group.
 *
 * Errors: DP_ERR_NOMEM, those of the transport.
 */
DP_CHECKED dp_status dp_cost_measure(struct dp_group *group, size_t max_bytes, double seconds,
                                     struct dp_cost *out);

/* ---- closed forms; bytes of the whole array; all in seconds ---- */

/* Every rank exchanges `bytes` with a rank `distance` away (partners by exclusive or, ranks of a
 * node consecutive): over the wire all ranks of a node share it. */
double dp_cost_exchange(const struct dp_cost *cost, const struct dp_group *group, int distance,
                        double bytes);

/* Every rank sends to the next and receives from the one before: one message on each wire. */
double dp_cost_neighbour(const struct dp_cost *cost, const struct dp_group *group, double bytes);

/* The same two where what comes in is added. */
double dp_cost_exchange_add(const struct dp_cost *cost, const struct dp_group *group, int distance,
                            double bytes);
double dp_cost_neighbour_add(const struct dp_cost *cost, const struct dp_group *group,
                             double bytes);

/* Reduce-scatter and allgather around a ring: Thakur et al., section 4.5. */
double dp_cost_ring(const struct dp_cost *cost, const struct dp_group *group, double bytes);

/* Recursive doubling; ranks beyond a power of two fold in before and get the sum after: ibid. */
double dp_cost_doubling(const struct dp_cost *cost, const struct dp_group *group, double bytes);

/* Rabenseifner: recursive halving, then doubling back; a fold in halves: ibid. */
double dp_cost_rabenseifner(const struct dp_cost *cost, const struct dp_group *group, double bytes);

#endif
