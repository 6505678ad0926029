/*
 * replica_check.h - whether all ranks still hold the same state; if not, where they differ, and
 * repair.
 *
 * Every rank has a copy of the weights, and after every step all copies are equal, bit for bit. A
 * flipped bit in one rank's memory breaks that silently, and for good. So a hash travels in the
 * tail of every step's gradient (step_scalars.h): in most steps of one slice of the weights, and in
 * every `every`th, as in the first, of all state that each rank has a whole copy of:
 *
 *   sharing                       | weights | running statistics | optimizer state
 *   replicated                    | yes     | yes                | yes
 *   parts (zero1)                 | yes     | yes                | no: each part exists once
 *   parts, one copy for all ranks | no      | yes                | no
 *
 * Where ranks of a node share one copy of the weights there is nothing that could differ.
 *
 * Why not all state in each step: XXH3 takes 8 us for a slice and 0.8 ms for the 15 MB of weights
 * and momentum of models/mlp.cfg out of cache (AMD EPYC), a tenth of its step on two ranks; every
 * 100 steps that is a thousandth. A slice finds a lasting difference within trained / DP_SLICE
 * steps; only the comparison of all sees optimizer state, and what a publish would heal.
 *
 * When hashes differ, which all ranks see in the same step, they find out together: hashes of each
 * bucket, in those that differ of each tensor, and in those that differ elements. More than half of
 * the ranks with one hash of a tensor are right; with two ranks, nobody knows who is.
 */
#ifndef DP_RUNTIME_TRAINER_REPLICA_CHECK_H
#define DP_RUNTIME_TRAINER_REPLICA_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/exchange/exchange.h"
#include "models/model.h"
#include "runtime/trainer/host_state.h"

/* Elements of the weights that are hashed in each step: a multiple of DP_BLOCK. */
enum { DP_SLICE = 32768 };

/* All borrowed. */
struct dp_replica_check_config {
    struct dp_exchange *exchange;
    const struct dp_flat *flat; /* complete; the host's: host state->flat */
    struct dp_host_state *host_state;
    const struct dp_model *model;
    const char *const *slots; /* [2] names of the optimizer's state; NULL after the last */
    uint64_t every;           /* steps; 0: only slices */
    bool restore;             /* copy what the majority has, instead of failing */
};

struct dp_replica_check {
    struct dp_replica_check_config config;
    struct dp_piece *pieces; /* owned; what is compared, tensor by tensor */
    int piece_count;
    struct dp_rank_look *looks; /* owned; [ranks] */
    uint64_t *hashes;           /* owned; [ranks] */
    char (*hosts)[64];          /* owned; [ranks] */
    float *block;               /* owned; [DP_SLICE], of another rank */
    uint64_t hash;              /* of the last dp_replica_check_hash() */
    bool whole;                 /* that one was of all state */
    uint64_t next;              /* step in which the next one is to be */
    int64_t restored;           /* how often state had to be restored */
};

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_replica_check_create(const struct dp_replica_check_config *config,
                                             struct dp_replica_check **out);
void dp_replica_check_destroy(struct dp_replica_check *replica_check);

/*
 * The hash for the tail of a step. Where ranks share one copy of the weights before any bucket of
 * it is submitted: they may write to a bucket as soon as all have submitted it. 0 for one rank,
 * where gradients are not shared, and for ranks within `local` steps: nothing is to be equal.
 * `step`: how many were done.
 *
 * It is of all state where dp_replica_check_due() was true before. Then nothing may be updated
 * before the sums of the tail were read: so differences are found as they are, before weights are
 * published over them. Nor may it in local steps.
 */
DP_CHECKED dp_status dp_replica_check_hash(struct dp_replica_check *replica_check, uint64_t step,
                                           bool local, uint64_t *hash);

/* Whether dp_replica_check_hash() of this step will compare all state, not a slice of the weights.
 * Local. */
bool dp_replica_check_due(const struct dp_replica_check *replica_check, uint64_t step, bool local);

/*
 * The hashes of the ranks differ: finds out where, reports it in one line (rank 0), and restores it
 * if so configured and possible; then all ranks are equal again. `step`: after which the state was
 * hashed, as in dp_replica_check_hash(); slices are hashed before a step's update and resolved
 * after it, but it is the step that the run has come to, and whose checkpoint may hold the
 * difference. Collective, while no bucket is on its way.
 *
 * Errors: DP_ERR_DISAGREE, on all ranks.
 */
DP_CHECKED dp_status dp_replica_check_resolve(struct dp_replica_check *replica_check,
                                              uint64_t step);

/* Compares all state now, between steps, unless config.every is 0: before it is saved. *split: it
 * differs, and is to be resolved. Collective. */
DP_CHECKED dp_status dp_replica_check_all(struct dp_replica_check *replica_check, bool *split);

#endif
