/*
 * snapshot.h - a copy of everything that a resumed run needs, whole, on one rank or node.
 *
 * Taken between two steps from all ranks, and written at leisure while training goes on; or read
 * from a checkpoint, and given to all ranks, of whatever number and sharing.
 */
#ifndef DP_RUNTIME_CHECKPOINT_SNAPSHOT_H
#define DP_RUNTIME_CHECKPOINT_SNAPSHOT_H

#include <stdatomic.h>

#include "collectives/exchange/exchange.h"
#include "runtime/checkpoint/async_copy.h"
#include "runtime/checkpoint/state_dict.h"
#include "runtime/checkpoint/weights.h"

enum { DP_SNAPSHOT_NAME = 48 };

/* Its rows are those of the list it was made for, with memory of their own: scalars as they are,
 * arrays whole, of DP_SPREAD_RANK one for each rank, behind each other. */
struct dp_snapshot {
    struct dp_state_dict rows; /* their data is NULL on ranks that cannot reach the memory */
    void *memory;              /* owned: all of the rows'; NULL where `window` is it */
    int ranks;
    bool moved; /* rank 0, of one to be restored: other ranks own its places now, of as many */
    size_t trained;
    struct dp_group *group;       /* borrowed; whose ranks have it together. NULL: rank 0's alone */
    struct dp_exchange *exchange; /* borrowed; owns the group */
    void *window;                 /* owned; this rank's piece of the node's memory, or NULL */
    atomic_ullong *copied; /* in rank 0's piece: how many copies local peers have ended; or NULL */
    int peers, place;      /* ranks that copy, and which of them this one is; -1: none */
    uint64_t takes;        /* begun so far */
    struct dp_async_copy *async_copy; /* owned; NULL: what is copied is copied at once */
    struct dp_slot *slots;            /* owned; the arrays of the optimizer file */
    int slot_count;
    char (
        *names)[DP_SNAPSHOT_NAME]; /* owned; of slots: "momentum", "compressor.residual.0.rank3" */
};

/* Room for `kept` of so many ranks. `flat` tells the lengths. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_snapshot_create(const struct dp_state_dict *kept,
                                        const struct dp_flat *flat, int ranks,
                                        struct dp_snapshot **out);

/*
 * The same for all ranks of an exchange, in memory of rank 0's node, so that its ranks copy what
 * they have themselves, side by side, with a async copy whose owner helps on `threads` threads.
 * Where there is no such memory rank 0 copies everything. Collective, and so is destroying it.
 */
DP_CHECKED dp_status dp_snapshot_share(const struct dp_state_dict *kept, const struct dp_flat *flat,
                                       struct dp_exchange *exchange, int threads,
                                       struct dp_snapshot **out);
void dp_snapshot_destroy(struct dp_snapshot *snapshot);

/* Copies what is not laid out as the parameters, as this rank has it: scalars, and arrays of any
 * length. */
void dp_snapshot_fill(struct dp_snapshot *snapshot, const struct dp_state_dict *kept);

/*
 * Copies all rows, between steps. Collective; of one that is rank 0's alone every other rank gives
 * NULL. The exchange's memory is used. Nobody may be reading it on rank 0.
 *
 * With a async copy, weights and optimizer state are only begun to be copied, each part by the rank
 * that updates it, which calls dp_async_copy_finish() before it does; where ranks share weights but
 * not the snapshot they are copied at once. Who else may change anything knows that all ranks have
 * finished. Whoever reads the snapshot waits for all parts first.
 */
DP_CHECKED dp_status dp_snapshot_take(struct dp_snapshot *snapshot,
                                      const struct dp_state_dict *kept,
                                      struct dp_exchange *exchange);

/* Returns when all ranks have copied their parts; on rank 0, on any thread. Errors:
 * DP_ERR_CANCELLED (the job ends). */
DP_CHECKED dp_status dp_snapshot_wait(const struct dp_snapshot *snapshot);

/*
 * The other way: rank 0's snapshot, which may be of another number of ranks, reaches the rows of
 * all. Arrays of ranks are given back exactly to as many ranks; otherwise each gets an equal part
 * of their sum, to which that of the row of owners before it is added. So it is with rows of owners
 * and those behind them, too, where `moved` is set in the snapshot. Collective; every rank but 0
 * gives NULL, and all know `ranks`, those of the snapshot.
 *
 *   forget  the number of a row that keeps its value, for the test that every row matters; -1: none
 */
DP_CHECKED dp_status dp_snapshot_restore(const struct dp_snapshot *snapshot, int ranks,
                                         const struct dp_state_dict *kept,
                                         const struct dp_flat *flat, struct dp_exchange *exchange,
                                         int forget);

#endif
