/*
 * cost.h - predicts how long sharing takes, from measurements of links and memory.
 *
 * A message of n bytes takes alpha + beta n, adding n bytes takes gamma n; whole algorithms follow
 * in closed form. On real machines beta is not constant: short and long messages use different
 * protocols, and buffers fit into one cache or another. So measurements are kept as curves: points
 * with straight lines between them, each with its own alpha and beta. Predictions read the curves.
 * One alpha, beta and gamma are fitted to them as well, for people.
 *
 * Sources: Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994), section 2
 * (alpha, beta); Thakur, Rabenseifner and Gropp, "Optimization of collective communication
 * operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), sections 3 and 4 (gamma,
 * algorithms); Kielmann, Bal and Verstoep, "Fast measurement of LogP parameters for message passing
 * platforms", IPDPS workshops 2000 (parameters that depend on the size).
 */
#ifndef DP_COLLECTIVES_STRATEGIES_COST_H
#define DP_COLLECTIVES_STRATEGIES_COST_H

#include "collectives/core/group.h"

enum { DP_CURVE_POINTS = 16 };

/* Seconds of an operation as a function of its bytes; points sorted by bytes. */
struct dp_curve {
    int count;
    double bytes[DP_CURVE_POINTS], seconds[DP_CURVE_POINTS];
};

enum dp_link { DP_LINK_NODE, DP_LINK_WIRE /* between nodes */, DP_LINK_COUNT };

struct dp_cost {
    /* Every rank sends n bytes to one neighbour while it receives n from another. On a node all its
     * ranks do so at the same time; on the wire one rank of each node does, in a row of such
     * messages. No points: there is no such link. */
    struct dp_curve exchange[DP_LINK_COUNT];
    struct dp_curve
        add; /* on the node: as exchange, but incoming data is added (dp_segmented_add) while other
              * segments are in flight. Without points: exchange and sum */
    struct dp_curve whole; /* on the node: as exchange, but in one message of any length, as MPI's
                            * own algorithms send */
    struct dp_curve sum;   /* y += x of n bytes each, on all ranks together */
    struct dp_curve copy;  /* y = x, likewise */
    struct dp_curve peer;  /* y += x where y is another rank's memory on the node, likewise; up to
                           * the size that could be shared. No points: none could */
    double flags_s;        /* a barrier of the node's ranks over flags in shared memory; only where
                           * peer has points */
    double alpha[DP_LINK_COUNT], beta[DP_LINK_COUNT]; /* s, s/byte; fitted through exchange */
    double gamma;                                     /* s/byte; fitted through sum */
};

/* The curves as files have them: curve i, from 0, its name ("node", "wire", "add", "whole", "sum",
 * "copy", "peer") in *name. NULL past the last. */
struct dp_curve *dp_cost_curve(struct dp_cost *cost, int i, const char **name);

/* Seconds for `bytes`, by linear interpolation. Below the first point: its time. Above the last
 * point: the first point's time is constant and the rest of the last point's time grows with the
 * bytes. 0 without points. */
double dp_curve_at(const struct dp_curve *curve, double bytes);

/* The alpha and beta, at least 0, with the least squares of relative errors over the curve. Both
 * are 0 without points; alpha is 0 with one point. */
void dp_curve_fit(const struct dp_curve *curve, double *alpha, double *beta);

/* Sets alpha, beta and gamma from the curves. */
void dp_cost_fit(struct dp_cost *cost);

/*
 * Measures all curves, up to max_bytes, in about `seconds`; the same numbers on every rank. Each
 * point is the median of several turns. A turn takes as long as its slowest rank, and buffers are
 * rewritten before every turn. group->stream must be set. Collective; no engine may own the group.
 *
 * Errors: DP_ERR_NOMEM, those of the transport.
 */
DP_CHECKED dp_status dp_cost_measure(struct dp_group *group, size_t max_bytes, double seconds,
                                     struct dp_cost *out);

/* ---- closed forms; bytes of the whole array; all in seconds ---- */

/* Every rank exchanges `bytes` with the rank at `distance` (partners by exclusive or; ranks of a
 * node are consecutive). All ranks of a node share its wire. */
double dp_cost_exchange(const struct dp_cost *cost, const struct dp_group *group, int distance,
                        double bytes);

/* Every rank sends to the next and receives from the previous: one message on each wire. */
double dp_cost_neighbour(const struct dp_cost *cost, const struct dp_group *group, double bytes);

/* The same two, with incoming data added. */
double dp_cost_exchange_add(const struct dp_cost *cost, const struct dp_group *group, int distance,
                            double bytes);
double dp_cost_neighbour_add(const struct dp_cost *cost, const struct dp_group *group,
                             double bytes);

/* Reduce-scatter and allgather around a ring: Thakur et al., section 4.5. */
double dp_cost_ring(const struct dp_cost *cost, const struct dp_group *group, double bytes);

/* Recursive doubling. Ranks above a power of two fold in first and get the sum at the end: ibid. */
double dp_cost_doubling(const struct dp_cost *cost, const struct dp_group *group, double bytes);

/* Rabenseifner: recursive halving, then doubling; the fold is in halves: ibid. */
double dp_cost_rabenseifner(const struct dp_cost *cost, const struct dp_group *group, double bytes);

#endif
