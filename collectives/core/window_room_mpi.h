/*
 * window_room_mpi.h - whether MPI can give the ranks of a node memory to share, found out without
 * it: a rank of Open MPI that cannot make the file behind that memory, or map it, returns, and its
 * peers wait for it for ever.
 */
#ifndef DP_COLLECTIVES_CORE_WINDOW_ROOM_MPI_H
#define DP_COLLECTIVES_CORE_WINDOW_ROOM_MPI_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/* Where MPI makes that file, into text[size]: a setting of Open MPI, whose default depends on what
 * the system offers; /dev/shm with an MPI that has no such setting. */
void dp_mpi_window_folder(char *text, int size);

/*
 * Before MPI starts: where /dev/shm has no room for the segments through which Open MPI passes
 * messages on a node, puts them into the folder for temporary files, unless the user has said
 * where. They are files that take room only as they are written to: where none is left then, SIGBUS
 * ends the rank.
 */
void dp_mpi_place_segments(void);

/* Whether there is room for all pieces, of which `mine` bytes are this rank's. Collective on
 * `node`; ranks may find different answers. */
bool dp_mpi_window_fits(MPI_Comm node, size_t mine);

#endif
