#include "base/system/openmp.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/files/file.h"

/* Where runs share cores, less spinning is faster. A single run on two cores that never spins
 * (OMP_WAIT_POLICY=passive) loses a fifth with lenet and two fifths with a small model. From 5000
 * turns on both are as fast as with the library's 300,000. */
static const char *const turns = "5000";

void dp_openmp_spin_briefly(char *const *argv)
{
    char path[DP_PATH_BYTES];
    ssize_t length;

    /* If there is no interpreter's address, the loader itself was started (`ld.so ddp_train ...`):
     * starting it again would pass it our arguments. */
    if (getauxval(AT_BASE) == 0 || getenv("OMP_WAIT_POLICY") != NULL ||
        getenv("GOMP_SPINCOUNT") != NULL || setenv("GOMP_SPINCOUNT", turns, 0) != 0) {
        return;
    }
    length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length > 0 && (size_t)length < sizeof(path) - 1) {
        path[length] = '\0'; /* by its name, which process lists show */
        (void)execv(path, argv);
    }
}

int dp_openmp_asked(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    char *end = NULL;
    const long asked = text != NULL ? strtol(text, &end, 10) : 0;

    if (asked < 1 || (*end != '\0' && *end != ',')) {
        return 0;
    }
    return asked < INT_MAX ? (int)asked : INT_MAX;
}

void dp_openmp_start(int threads)
{
    atomic_int running;

    atomic_init(&running, 0);
#if DP_HAVE_OPENMP
#pragma omp parallel num_threads(threads)
#else
    (void)threads;
#endif
    atomic_fetch_add(&running, 1); /* which the compiler does not leave out */
}
