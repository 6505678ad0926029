/*
 * pieces_mpi.h - a message between nodes goes in pieces that Open MPI sends at once.
 *
 * A larger message than its eager limit (world.c, settings) is announced first, and the answer to
 * that waits behind all that is queued in the other direction: a third of the bandwidth of a slow
 * wire that is busy both ways. On one node there is no such queue, and no piece.
 */
#ifndef DP_COLLECTIVES_CORE_PIECES_MPI_H
#define DP_COLLECTIVES_CORE_PIECES_MPI_H

#include <mpi.h>

#include "collectives/core/backoff.h"
#include "collectives/core/group.h"

enum dp_direction { DP_SEND, DP_RECEIVE };

/*
 * Starts one direction of a transfer.
 *
 *   cut   in   whether it goes in pieces: equal on both sides
 *   kept  out  MPI requests as numbers, so that group.h needs no mpi.h; behind the last a null
 *
 * Errors: DP_ERR_MPI.
 */
DP_CHECKED dp_status dp_pieces_start(MPI_Comm comm, struct dp_slice slice, int peer, bool cut,
                                     enum dp_direction direction, uint64_t kept[DP_PIECES]);

struct dp_requests {
    MPI_Request all[2 * DP_PIECES];
    int count;
};

/* All requests of a transfer: none of a direction that is not used, or finished. */
struct dp_requests dp_pieces_requests(const struct dp_transfer *transfer);

/* Returns when all of these are done. A blocking MPI call would spin. Errors: DP_ERR_MPI,
 * DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_pieces_wait(struct dp_backoff *patience, MPI_Request *requests, int count);

#endif
