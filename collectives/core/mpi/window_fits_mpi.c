#define _GNU_SOURCE /* RTLD_DEFAULT */

#include "collectives/core/mpi/window_fits_mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/files/file.h"
#include "base/files/shared_file.h"
#include "base/trace.h"

/* The value of a setting of Open MPI: from the environment, a file of settings, or the default. */
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
    return result;
}

/* As read_setting(), by functions of Open MPI 4 and 5 that it does not document, of which these are
 * declarations of our own. False: they are not there, or do not know it. */
static bool peek_setting(const char *name, char *text, size_t size)
{
    int (*find)(const char *name, int *index);
    int (*get)(int index, const void *value, void *source, const char **file);
    const char *const *value = NULL;
    int index = 0;
    void *const find_at = dlsym(RTLD_DEFAULT, "mca_base_var_find_by_name");
    void *const get_at = dlsym(RTLD_DEFAULT, "mca_base_var_get_value");

    if (find_at == NULL || get_at == NULL) {
        return false;
    }
    memcpy(&find, &find_at, sizeof(find)); /* in the way that POSIX requires */
    memcpy(&get, &get_at, sizeof(get));
    if (find(name, &index) != MPI_SUCCESS || get(index, &value, NULL, NULL) != MPI_SUCCESS ||
        value == NULL || (*value != NULL && strlen(*value) >= size)) {
        return false;
    }
    (void)snprintf(text, size, "%s", *value != NULL ? *value : "");
    return true;
}

static const char folder_name[] = "osc_sm_backing_directory";
static const char window_setting[] = "OMPI_MCA_osc_sm_backing_directory";
static pthread_once_t folder_read = PTHREAD_ONCE_INIT;
static char window_folder[DP_PATH_BYTES];

static void read_folder(void)
{
    const char *set = getenv(window_setting);
    int provided, result = MPI_ERR_OTHER;

    if (set != NULL && set[0] != '\0' && strlen(set) < sizeof(window_folder)) {
        (void)snprintf(window_folder, sizeof(window_folder), "%s", set);
        return; /* it counts more than any file */
    }
    if (peek_setting(folder_name, window_folder, sizeof(window_folder))) {
        return;
    }
    if (MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS) {
        result = read_setting(folder_name, window_folder, sizeof(window_folder));
        (void)MPI_T_finalize();
    }
    if (result != MPI_SUCCESS) {
        (void)snprintf(window_folder, sizeof(window_folder), "/dev/shm");
    }
}

/* Settings do not change while a program runs, and to read one as MPI says takes long: to list all
 * there are, Open MPI 4 loads every component it has, with their libraries. libpsm2 and
 * libinfinipath each measure a clock for 100 ms when they are loaded. */
const char *dp_mpi_window_folder(void)
{
    (void)pthread_once(&folder_read, read_folder);
    return window_folder;
}

/* Size for one rank: the setting, or the default of Open MPI 4. */
static unsigned long long segment_bytes(void)
{
    const char *set = getenv("OMPI_MCA_btl_vader_segment_size");
    const unsigned long long bytes = set != NULL ? strtoull(set, NULL, 10) : 0;

    return bytes > 0 ? bytes : 4 << 20;
}

static const char folder_setting[] = "OMPI_MCA_btl_vader_backing_directory";

/* For Open MPI such a folder has no name, and nothing can be created in it. */
static void take_out_empty(const char *variable)
{
    const char *set = getenv(variable);

    if (set != NULL && set[0] == '\0') {
        (void)unsetenv(variable);
    }
}

bool dp_mpi_place_segments(void)
{
    const char *ranks = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *temporary = getenv("TMPDIR");
    const unsigned long long count = ranks == NULL ? 0 : strtoull(ranks, NULL, 10);
    struct rlimit most = {0, 0};

    take_out_empty(window_setting);
    take_out_empty(folder_setting);
    if (count * segment_bytes() > dp_file_free("/dev/shm")) {
        (void)setenv(folder_setting, temporary != NULL ? temporary : "/tmp", 0);
        return false;
    }
    return getenv(folder_setting) == NULL && getrlimit(RLIMIT_FSIZE, &most) == 0 &&
           most.rlim_cur >= segment_bytes();
}

/* How much space of a folder Open MPI's segments may still take. */
static unsigned long long segments_in(const char *folder, MPI_Comm node)
{
    const char *set = getenv(folder_setting);
    int ranks = 0;

    return strcmp(folder, set != NULL ? set : "/dev/shm") == 0 &&
                   MPI_Comm_size(node, &ranks) == MPI_SUCCESS
               ? (unsigned long long)ranks * segment_bytes()
               : 0;
}

static bool sum(MPI_Comm node, const unsigned long long *mine, unsigned long long *all)
{
    DP_AWAIT_RANKS();

    return MPI_Allreduce(mine, all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, node) == MPI_SUCCESS;
}

bool dp_mpi_window_fits(MPI_Comm node, size_t mine)
{
    const unsigned long long piece = mine;
    unsigned long long all = 0;
    const char *folder;

    if (!sum(node, &piece, &all)) {
        return false;
    }
    all += all / 8 + ((unsigned long long)1 << 16); /* MPI's own, and the next small piece */
    folder = dp_mpi_window_folder();
    return folder[0] != '\0' && dp_file_free(folder) > all + segments_in(folder, node) &&
           dp_shared_file_possible(folder, all);
}
