/*
 * replica_check.h - checks that all ranks still hold the same state; if not, finds where they
 * differ, and repairs it.
 *
 * Every rank has a copy of the weights, and after every step all copies are equal, bit for bit. A
 * flipped bit in one rank's memory breaks that silently, and permanently. So a hash is sent in the
 * tail of every step's gradient (step_scalars.h): in most steps it covers one slice of the weights;
 * in the first step, and in every `every`th, it covers all state of which each rank has a whole
 * copy:
 *
 *   sharding                      | weights | running statistics | optimizer state
 *   replicated                    | yes     | yes                | yes
 *   parts (zero1)                 | yes     | yes                | no: each part exists once
 *   parts, one copy for all ranks | no      | yes                | no
 *
 * In steps also the weights of a narrow type that layers read.
 *
 * Where ranks of a node share one copy of the weights nothing can differ.
 *
 * Not all state is hashed in each step, because XXH3 takes 8 us for a slice and 0.8 ms for the 15
 * MB of weights and momentum of models/mlp.cfg out of cache (AMD EPYC), a tenth of its step on two
 * ranks; every 100 steps it is a thousandth. Slices find a lasting difference within trained /
 * DP_SLICE steps. Only the comparison of all state covers optimizer state, and weights that
 * publishing would overwrite.
 *
 * All ranks see in the same step that hashes differ. Together they compare hashes of each bucket,
 * in those that differ hashes of each tensor, and in those that differ elements. If more than half
 * of the ranks have the same hash of a tensor, they are right; with two ranks nobody knows which
 * is.
 */
#ifndef DP_RUNTIME_TRAINER_STATE_REPLICA_CHECK_H
#define DP_RUNTIME_TRAINER_STATE_REPLICA_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/exchange/exchange.h"
#include "models/model.h"
#include "runtime/trainer/state/host_state.h"

/* Elements of the weights that are hashed in each step: a multiple of DP_BLOCK. */
enum { DP_SLICE = 32768 };

/* All borrowed. */
struct dp_replica_check_config {
    struct dp_exchange *exchange;
    const struct dp_flat *flat; /* complete; of the host: host_state->flat */
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
    bool whole;                 /* whether that one covered all state */
    uint64_t next;              /* step of the next comparison of all state */
    int64_t restored;           /* how often state had to be restored */
};

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_replica_check_create(const struct dp_replica_check_config *config,
                                             struct dp_replica_check **out);
void dp_replica_check_destroy(struct dp_replica_check *replica_check);

/*
 * Returns the hash for the tail of a step. Where ranks share one copy of the weights, call it
 * before any bucket of the step is submitted: ranks may write to a bucket as soon as all have
 * submitted it. 0 where nothing is to be equal: for one rank, where gradients are not shared, and
 * in `local` steps. `step`: number of steps done.
 *
 * It covers all state if dp_replica_check_due() was true before. Then nothing may be updated until
 * the sums of the tail were read, so that differences are found before weights are published over
 * them. The same holds in local steps.
 */
DP_CHECKED dp_status dp_replica_check_hash(struct dp_replica_check *replica_check, uint64_t step,
                                           bool local, uint64_t *hash);

/* Whether dp_replica_check_hash() of this step will compare all state, not a slice of the weights.
 * Local. */
bool dp_replica_check_due(const struct dp_replica_check *replica_check, uint64_t step, bool local);

/*
 * Call it when the hashes of the ranks differ: finds where, reports it in one line (rank 0), and
 * restores it if that is configured and possible; then all ranks are equal again. `step`: number of
 * steps done. Slices are hashed before a step's update and resolved after it; the reported step is
 * the one whose checkpoint may hold the difference. Collective, while no bucket is being summed.
 *
 * Errors: DP_ERR_DISAGREE, on all ranks.
 */
DP_CHECKED dp_status dp_replica_check_resolve(struct dp_replica_check *replica_check,
                                              uint64_t step);

/* Compares all state, between steps and before it is saved, unless config.every is 0. *split: it
 * differs, and must be resolved. Collective. */
DP_CHECKED dp_status dp_replica_check_all(struct dp_replica_check *replica_check, bool *split);

#endif
