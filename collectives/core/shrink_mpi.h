/*
 * shrink_mpi.h - communicators that lose ranks, and those that are left: MPI's fault tolerance,
 * ULFM (Bland, Bouteiller, Herault, Bosilca, Dongarra: Post-failure recovery of MPI communication
 * capability, 2013). Open MPI has it from 5.0 on, under `mpirun --with-ft ulfm`.
 */
#ifndef DP_COLLECTIVES_CORE_SHRINK_MPI_H
#define DP_COLLECTIVES_CORE_SHRINK_MPI_H

#include <mpi.h>

#include "base/status.h"
#include "collectives/core/loss_mpi.h"

/* Whether MPI knows that a rank of the communicator has died, or that another rank has said so.
 * Local. */
bool dp_mpi_has_lost(MPI_Comm comm);

/* Ends all messages of the communicator, on all ranks, with an error for which dp_mpi_is_loss() is
 * true; it can be shrunk only. Not collective; may be called again. */
void dp_mpi_revoke(MPI_Comm comm);

/*
 * Makes a communicator of the ranks that live, which keep their order. Collective over them.
 *
 *   comm   revoked
 *   out    out
 *
 * Errors: DP_ERR_MPI, DP_ERR_UNAVAILABLE (this MPI cannot).
 */
DP_CHECKED dp_status dp_mpi_shrink(MPI_Comm comm, MPI_Comm *out);

/* Whether `mine` is true on all ranks that live; the same on all of them, also when one dies
 * meanwhile. Collective over them, even after a revocation. */
bool dp_mpi_agree(MPI_Comm comm, bool mine);

/* rank_of [size of few]: the numbers that its ranks have in `many`; -1: it is not among them.
 * Local. Errors: DP_ERR_MPI. */
DP_CHECKED dp_status dp_mpi_ranks_in(MPI_Comm few, int size, MPI_Comm many, int *rank_of);

#endif
