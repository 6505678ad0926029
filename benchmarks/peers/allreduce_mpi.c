/*
 * allreduce_mpi.c - times sums of float32 over ranks, as ddp_bench times strategies, by the MPI
 * that it is compiled with; with -DDP_ONECCL by oneCCL, which MPI starts. See compare_allreduce.
 *
 *     mpiexec -n N allreduce_mpi FIRST LAST FACTOR CALLS
 *
 * Prints a line for each size in bytes, from FIRST to LAST: the size, and for sums out of place and
 * in place the median over calls of the slowest rank's time in us. Buffers are written anew before
 * each call, and ranks meet after that. Ends with code 1 if a sum is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, PLACES = 2 };

#ifdef DP_ONECCL
void allreduce_begin(int *argc, char ***argv);
void allreduce_call(const float *from, float *to, size_t count);
void allreduce_end(void);
#else
static void allreduce_begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
}

static void allreduce_call(const float *from, float *to, size_t count)
{
    MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, (int)count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void allreduce_end(void)
{
    MPI_Finalize();
}
#endif

static float *buffer(size_t bytes)
{
    float *memory = aligned_alloc(4096, bytes);

    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* The median, and whether all sums were right. */
static double time_calls(float *from, float *to, size_t count, int calls, int *wrong)
{
    double *mine = malloc((size_t)calls * sizeof(*mine)),
           *all = malloc((size_t)calls * sizeof(*all));
    double median;
    int rank, ranks;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int call = -WARM_UP; call < calls; call++) {
        for (size_t i = 0; i < count; i++) {
            to[i] = -1.0f;
            from[i] = (float)(rank + (int)(i % 64) + call);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        allreduce_call(from, to, count);
        if (call >= 0) {
            mine[call] = (MPI_Wtime() - begin) * 1e6;
        }
        for (size_t i = 0; i < count; i += 61) {
            const int sum = ranks * ((int)(i % 64) + call) + ranks * (ranks - 1) / 2;
            *wrong += to[i] != (float)sum;
        }
    }
    MPI_Allreduce(mine, all, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(all, (size_t)calls, sizeof(*all), compare);
    median = calls % 2 == 1 ? all[calls / 2] : (all[calls / 2 - 1] + all[calls / 2]) / 2.0;
    free(mine);
    free(all);
    return median;
}

int main(int argc, char **argv)
{
    int rank, wrong = 0;

    allreduce_begin(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 5) {
        fprintf(stderr, "usage: allreduce_mpi FIRST LAST FACTOR CALLS\n");
        MPI_Abort(MPI_COMM_WORLD, 64);
    }
    const size_t first = strtoull(argv[1], NULL, 10), last = strtoull(argv[2], NULL, 10);
    const size_t factor = strtoull(argv[3], NULL, 10);
    const int calls = (int)strtol(argv[4], NULL, 10);
    float *from = buffer(last), *to = buffer(last);
    for (size_t size = first; size <= last; size *= factor) {
        double us[PLACES];
        for (int in_place = 0; in_place < PLACES; in_place++) {
            us[in_place] =
                time_calls(in_place ? to : from, to, size / sizeof(float), calls, &wrong);
        }
        if (rank == 0) {
            printf("%zu %.3f %.3f\n", size, us[0], us[1]);
        }
    }
    free(from);
    free(to);
    allreduce_end();
    return wrong != 0;
}
