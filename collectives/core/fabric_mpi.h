/*
 * fabric_mpi.h - by what MPI's messages go: shared memory, TCP, UCX, libfabric.
 */
#ifndef DP_COLLECTIVES_CORE_FABRIC_MPI_H
#define DP_COLLECTIVES_CORE_FABRIC_MPI_H

#include <stdbool.h>
#include <stddef.h>

enum { DP_FABRIC_BYTES = 80 };

/*
 * What Open MPI has chosen, from the components that are still open after MPI_Init: those not
 * chosen are unloaded or, where they are parts of the library, closed, and their variables gone
 * from MPI's tool interface (MPI 4.0, chapter 15).
 *
 *   nodes  number of nodes of the job
 *   text   out  "shared memory on a node, TCP between nodes"; "" where it is not known: another
 *               library than Open MPI
 *
 * Call it after MPI_Init. Local.
 */
void dp_mpi_fabric(int nodes, char text[DP_FABRIC_BYTES]);

/* The same from the names of open components, "pml_ob1", "btl_tcp" and so on, that NULL ends;
 * `settings` are UCX_TLS and FI_PROVIDER of the environment, each may be NULL. */
struct dp_fabric_settings {
    const char *ucx, *libfabric;
};
void dp_fabric_text(const char *const *components, int nodes, struct dp_fabric_settings settings,
                    char text[DP_FABRIC_BYTES]);

/* Whether messages between nodes go by TCP. */
bool dp_fabric_is_tcp(const char *text);

/* The library's name and version, such as "Open MPI v4.1.4"; also before MPI_Init. Local. */
void dp_mpi_library(char *text, size_t size);

#endif
