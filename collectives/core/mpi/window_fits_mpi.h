/*
 * window_fits_mpi.h - checks whether MPI can give the ranks of a node shared memory, without
 * trying. A rank of Open MPI that cannot create or map the file for that memory returns, and its
 * peers wait for it for ever.
 */
#ifndef DP_COLLECTIVES_CORE_MPI_WINDOW_FITS_MPI_H
#define DP_COLLECTIVES_CORE_MPI_WINDOW_FITS_MPI_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/* The folder in which MPI creates that file. It is a setting of Open MPI, whose default depends on
 * the system; /dev/shm with an MPI that has no such setting. Empty: a file of settings says so, and
 * none can be created. */
const char *dp_mpi_window_folder(void);

/*
 * Called before MPI starts. Open MPI passes messages on a node through segments in /dev/shm. Where
 * it has no space for them, puts them into the folder for temporary files, unless the user has set
 * a folder. These files take space only as they are written: if none is left then, SIGBUS ends the
 * rank. A setting of a folder that is empty is taken out of the environment. Returns whether they
 * are in /dev/shm, and fit.
 */
bool dp_mpi_place_segments(void);

/* Whether there is space for all pieces, of which `mine` bytes are this rank's. Collective on
 * `node`; ranks may get different answers. */
bool dp_mpi_window_fits(MPI_Comm node, size_t mine);

#endif
