/*
 * snapshot.h - a copy of everything that a resumed run needs, whole, on one rank or node.
 *
 * Taken between two steps from all ranks, and written while training continues; or read from a
 * checkpoint, and given to all ranks, for any number of ranks and any sharding.
 */
#ifndef DP_RUNTIME_CHECKPOINT_SNAPSHOT_H
#define DP_RUNTIME_CHECKPOINT_SNAPSHOT_H

#include <stdatomic.h>

#include "collectives/exchange/exchange.h"
#include "runtime/checkpoint/async_copy.h"
#include "runtime/checkpoint/state_dict.h"
#include "runtime/checkpoint/weights.h"

enum { DP_SNAPSHOT_NAME = 48 };

/* Its rows are those of the list it was made for, with memory of their own: scalars, and whole
 * arrays; of DP_SPREAD_RANK one array for each rank, one after the other. */
struct dp_snapshot {
    struct dp_state_dict rows; /* their data is NULL on ranks that cannot reach the memory */
    void *memory;              /* owned: of all rows; NULL if `window` holds them */
    int ranks;
    bool moved; /* rank 0, for a restore: the same number of ranks, but other ranks own its places
                 * now */
    size_t trained;
    struct dp_group *group;       /* borrowed; the ranks that share it. NULL: it is rank 0's
                                   * alone */
    struct dp_exchange *exchange; /* borrowed; owns the group */
    void *window;                 /* owned; this rank's piece of the node's memory, or NULL */
    atomic_ullong *copied; /* in rank 0's piece: how many copies local peers have finished; or
                            * NULL */
    int peers, place;      /* number of ranks that copy, and this rank's index among them; -1: it
                            * does not */
    uint64_t takes;        /* number of copies started so far */
    uint64_t copied_bytes; /* that this rank copied in all of them */
    struct dp_async_copy *async_copy; /* owned; NULL: arrays are copied immediately */
    struct dp_slot *slots;            /* owned; the arrays of the optimizer file */
    int slot_count;
    char (
        *names)[DP_SNAPSHOT_NAME]; /* owned; of slots: "momentum", "compressor.residual.0.rank3" */
};

/* Allocates memory for `state_dict` of this many ranks. `flat` has the lengths. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_snapshot_create(const struct dp_state_dict *state_dict,
                                        const struct dp_flat *flat, int ranks,
                                        struct dp_snapshot **out);

/*
 * The same for all ranks of an exchange, in memory of rank 0's node. Its ranks copy their own data
 * in parallel, with an async copy whose owner helps on `threads` threads. Where there is no such
 * memory rank 0 copies everything. Collective, and so is destroying it.
 */
DP_CHECKED dp_status dp_snapshot_share(const struct dp_state_dict *state_dict,
                                       const struct dp_flat *flat, struct dp_exchange *exchange,
                                       int threads, struct dp_snapshot **out);
void dp_snapshot_destroy(struct dp_snapshot *snapshot);

/* Copies what is not laid out as the parameters, with this rank's values: scalars, and arrays of
 * any length. */
void dp_snapshot_fill(struct dp_snapshot *snapshot, const struct dp_state_dict *state_dict);

/*
 * Copies all rows, between steps. Collective; if the snapshot is rank 0's alone, every other rank
 * passes NULL. Uses the exchange's memory. No thread of rank 0 may be reading the snapshot.
 *
 * With an async copy this only starts to copy weights and optimizer state. Each rank copies the
 * part that it updates, and must call dp_async_copy_finish() before the update. If ranks share
 * weights but not the snapshot, they are copied immediately. Code that may change anything else
 * first makes sure that all ranks have finished. Code that reads the snapshot waits for all parts
 * first.
 */
DP_CHECKED dp_status dp_snapshot_take(struct dp_snapshot *snapshot,
                                      const struct dp_state_dict *state_dict,
                                      struct dp_exchange *exchange);

/* Returns when all ranks have copied their parts; callable on rank 0, from any thread. Errors:
 * DP_ERR_CANCELLED (the job ends). */
DP_CHECKED dp_status dp_snapshot_wait(const struct dp_snapshot *snapshot);

/*
 * The reverse: sends rank 0's snapshot, which may be of another number of ranks, to the rows of all
 * ranks. Arrays of ranks are restored exactly for the same number of ranks. Otherwise each rank
 * gets an equal part of their sum, to which that of the preceding row of owners is added. If
 * `moved` is set, rows of owners and the rows after them are treated like that, too. Collective;
 * every rank but 0 passes NULL, and all know `ranks`, the number of ranks of the snapshot.
 */
DP_CHECKED dp_status dp_snapshot_restore(const struct dp_snapshot *snapshot, int ranks,
                                         const struct dp_state_dict *state_dict,
                                         const struct dp_flat *flat, struct dp_exchange *exchange);

#endif
