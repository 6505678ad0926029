#include "kernels/cpu/parallel.h"

#if DP_HAVE_OPENMP
#include <omp.h>
#endif

void dp_parallel_parts(int parts, void (*body)(void *arg, int part, int parts), void *arg)
{
    if (parts <= 1) {
        body(arg, 0, 1);
        return;
    }
#if DP_HAVE_OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
    for (int part = 0; part < parts; part++) {
        body(arg, part, parts);
    }
}

/* A loop that is cut into parts of equal length. */
struct cut {
    void (*body)(void *arg, size_t begin, size_t end);
    void *arg;
    size_t count, multiple;
};

static void cut_run(void *arg, int part, int parts)
{
    const struct cut *cut = arg;
    size_t begin, end;

    dp_part(cut->count, cut->multiple, part, parts, &begin, &end);
    if (end > begin) {
        cut->body(cut->arg, begin, end);
    }
}

void dp_parallel_rows(int threads, size_t rows, size_t width, size_t multiple,
                      void (*body)(void *arg, size_t begin, size_t end), void *arg)
{
    struct cut cut = {body, arg, rows, multiple};

    if (rows == 0) {
        return;
    }
    dp_parallel_parts(rows * width < DP_PARALLEL_MIN ? 1 : threads, cut_run, &cut);
}

void dp_parallel(int threads, size_t count, size_t multiple,
                 void (*body)(void *arg, size_t begin, size_t end), void *arg)
{
    dp_parallel_rows(threads, count, 1, multiple, body, arg);
}

void dp_use_threads(int threads)
{
#if DP_HAVE_OPENMP
    if (omp_get_max_threads() != threads) {
        omp_set_num_threads(threads);
    }
#else
    (void)threads;
#endif
}
