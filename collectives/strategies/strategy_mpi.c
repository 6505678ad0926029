/*
 * strategy_mpi.c - the MPI library's own allreduce, out of place: the baseline that others must
 * beat. (In place, Open MPI takes a slower algorithm for some sizes.)
 *
 * MPI_Allreduce spins while it waits; with nonblocking=1 it is MPI_Iallreduce, and waiting sleeps.
 * A reduce-scatter is not used for a chunk: its sums might have other bits.
 */
#include "collectives/strategies/strategy.h"

#include <string.h>

#include "base/trace.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/transport_mpi.h"

struct mpi {
    int nonblocking;
    struct dp_group *group; /* borrowed */
    MPI_Comm comm;
    float *sum; /* owned; [max_count] */
};

static bool mpi_supports(const struct dp_group *group, const char **why_not)
{
    if (group->size > 1 && !dp_mpi_connects(group)) {
        *why_not = "the ranks are not connected by MPI";
        return false;
    }
    return true;
}

static dp_status mpi_open(void *state, struct dp_group *group, size_t max_count)
{
    struct mpi *mpi = state;

    mpi->group = group;
    mpi->comm = MPI_COMM_NULL;
    mpi->sum = dp_mem_arena(DP_MEM_COMM, max_count * sizeof(float));
    if (mpi->sum == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "mpi: %zu elements", max_count);
    }
    const dp_status status = group->size > 1 ? dp_mpi_comm_open(group, &mpi->comm) : DP_OK;
    if (status != DP_OK) {
        dp_free(mpi->sum);
    }
    return status;
}

/* mpi->sum = the sum of `data`. */
static dp_status allreduce(const struct mpi *mpi, const void *data, int count)
{
    DP_AWAIT_RANKS();
    MPI_Request request;

    if (mpi->nonblocking == 0) {
        return DP_MPI(MPI_Allreduce(data, mpi->sum, count, MPI_FLOAT, MPI_SUM, mpi->comm));
    }
    DP_TRY(DP_MPI(MPI_Iallreduce(data, mpi->sum, count, MPI_FLOAT, MPI_SUM, mpi->comm, &request)));
    return dp_mpi_wait(mpi->group, &request);
}

static dp_status mpi_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct mpi *mpi = state;
    const int size = mpi->group->size;
    struct dp_slice kept = {mpi->sum, data.count, data.width};
    size_t at;
    int count;

    if (size == 1 || data.count == 0) {
        return DP_OK;
    }
    DP_TRY(dp_mpi_count(data.count, &count));
    DP_TRY(allreduce(mpi, data.data, count));
    mpi->group->wire_bytes += dp_slice_passes(data, size, 2);
    if (keep == DP_KEEP_CHUNK) {
        kept = dp_slice_chunk(kept, size, mpi->group->rank);
    }
    at = (size_t)((float *)kept.data - mpi->sum);
    return mpi->group->stream->ops->copy(mpi->group->stream, (float *)data.data + at, kept.data,
                                         dp_slice_bytes(kept));
}

/* The algorithm that Open MPI 4.1 chooses for a commutative sum up to some hundred ranks
 * (coll/tuned's fixed decisions), between two copies: into the result before, out of it after. */
static double mpi_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                       size_t bytes)
{
    const bool few = group->size < 4;
    struct dp_cost own = *cost;
    const double n = (double)bytes, copies = 2.0 * dp_curve_at(&cost->copy, n);

    (void)state;
    if (group->size == 1) {
        return 0.0;
    }
    own.add.count = 0; /* it sends whole messages, then adds */
    own.exchange[DP_LINK_NODE] = cost->whole;
    if (bytes < (few ? 16384u : 8192u)) {
        return copies + dp_cost_doubling(&own, group, n);
    }
    return copies + (few && bytes < 262144u ? dp_cost_ring(&own, group, n)
                                            : dp_cost_rabenseifner(&own, group, n));
}

static void mpi_close(void *state)
{
    struct mpi *mpi = state;

    dp_mpi_comm_close(mpi->group, mpi->comm);
    dp_free(mpi->sum);
}

#define MPI struct mpi

/* clang-format off */
static const struct dp_option mpi_options[] = {
    DP_INT(MPI, nonblocking, "0", 0, 1, "1: MPI_Iallreduce, whose wait sleeps instead of spinning"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_mpi = {
    .plugin = {.name = "mpi",
               .help = "MPI_Allreduce of the MPI library, out of place",
               .options = mpi_options,
               .state_bytes = sizeof(struct mpi)},
    .compares = true, /* its waits check no cancel flag */
    .supports = mpi_supports,
    .open = mpi_open,
    .sum = mpi_sum,
    .cost = mpi_cost,
    .close = mpi_close,
};
