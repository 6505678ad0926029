/*
 * pieces_mpi.h - a message between nodes is cut into pieces that Open MPI sends eagerly.
 *
 * Open MPI announces a message above its eager limit (world.c, settings) and waits for the answer.
 * The answer queues after everything else in the other direction: a third of the bandwidth of a
 * slow wire that is busy both ways. On one node there is no such queue, and messages are not cut.
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
 *   cut   in   whether to cut it into pieces: equal on both sides
 *   kept  out  MPI requests as numbers, so that group.h needs no mpi.h; a null after the last
 *
 * Errors: DP_ERR_MPI.
 */
DP_CHECKED dp_status dp_pieces_start(MPI_Comm comm, struct dp_slice slice, int peer, bool cut,
                                     enum dp_direction direction, uint64_t kept[DP_PIECES]);

struct dp_requests {
    MPI_Request all[2 * DP_PIECES];
    int count;
};

/* All requests of a transfer; none for a direction that is unused or finished. */
struct dp_requests dp_pieces_requests(const struct dp_transfer *transfer);

/* Returns when all requests are done. It does not block in MPI, which would spin. Errors:
 * DP_ERR_MPI, DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_pieces_wait(struct dp_backoff *backoff, MPI_Request *requests, int count);

#endif
