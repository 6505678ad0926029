#include "collectives/core/window_room_mpi.h"

#include <stdio.h>

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
    return dp_shared_file_possible(folder, all);
}
