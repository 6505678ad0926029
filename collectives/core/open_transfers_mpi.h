/*
 * open_transfers_mpi.h - the transfers of a group that are not done, where ranks may be lost:
 * whoever started them may have given up, while MPI still writes to their memory.
 */
#ifndef DP_COLLECTIVES_CORE_OPEN_TRANSFERS_MPI_H
#define DP_COLLECTIVES_CORE_OPEN_TRANSFERS_MPI_H

#include "collectives/core/pieces_mpi.h"

struct dp_open_transfers;

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_open_transfers_create(struct dp_open_transfers **out);
void dp_open_transfers_destroy(struct dp_open_transfers *open);

/* A transfer has started. open NULL: ranks cannot be lost, and nothing is noted; here and below. */
void dp_open_transfers_add(struct dp_open_transfers *open, const struct dp_transfer *transfer);

/* It is done, or has failed: then `left` are its requests after that, else NULL. */
void dp_open_transfers_end(struct dp_open_transfers *open, const struct dp_transfer *transfer,
                           const struct dp_requests *left);

/* Returns when all of them have ended, after their communicator was revoked; or after five
 * seconds. */
void dp_open_transfers_drain(struct dp_open_transfers *open);

#endif
