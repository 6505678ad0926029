#include "collectives/core/window_room_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/shared_file.h"

/* The setting's value: of the environment, a file of settings, or the default. */
static int read_setting(const char *name, char *text, int size)
{
    MPI_T_cvar_handle setting;
    int index, count, result;

    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &setting, &count) != MPI_SUCCESS) {
        return MPI_ERR_OTHER;
    }
    text[0] = '\0';
    result = count <= size ? MPI_T_cvar_read(setting, text) : MPI_ERR_OTHER;
    (void)MPI_T_cvar_handle_free(&setting);
    return text[0] != '\0' ? result : MPI_ERR_OTHER;
}

void dp_mpi_window_folder(char *text, int size)
{
    int provided, result = MPI_ERR_OTHER;

    if (MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS) {
        result = read_setting("osc_sm_backing_directory", text, size);
        (void)MPI_T_finalize();
    }
    if (result != MPI_SUCCESS) {
        (void)snprintf(text, (size_t)size, "/dev/shm");
    }
}

/* Of one rank: btl_vader_segment_size of Open MPI 4. */
static const unsigned long long segment_bytes = 4 << 20;

static const char folder_setting[] = "OMPI_MCA_btl_vader_backing_directory";

void dp_mpi_place_segments(void)
{
    const char *ranks = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *temporary = getenv("TMPDIR");
    const unsigned long long count = ranks == NULL ? 0 : strtoull(ranks, NULL, 10);

    if (count * segment_bytes > dp_file_free("/dev/shm")) {
        (void)setenv(folder_setting, temporary != NULL ? temporary : "/tmp", 0);
    }
}

/* What Open MPI's segments may yet take of a folder's room. */
static unsigned long long segments_in(const char *folder, MPI_Comm node)
{
    const char *set = getenv(folder_setting);
    int ranks = 0;

    return strcmp(folder, set != NULL ? set : "/dev/shm") == 0 &&
                   MPI_Comm_size(node, &ranks) == MPI_SUCCESS
               ? (unsigned long long)ranks * segment_bytes
               : 0;
}

bool dp_mpi_window_fits(MPI_Comm node, size_t mine)
{
    const unsigned long long piece = mine;
    unsigned long long all = 0;
    char folder[DP_PATH_BYTES];

    if (MPI_Allreduce(&piece, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, node) != MPI_SUCCESS) {
        return false;
    }
    all += all / 8 + ((unsigned long long)1 << 16); /* MPI's own, and the next little piece */
    dp_mpi_window_folder(folder, sizeof(folder));
    all += segments_in(folder, node);
    return dp_shared_file_possible(folder, all);
}
