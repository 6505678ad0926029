/*
 * columns.cuh - sums over the rows of a matrix [rows, cols], several at a time, in two kernels.
 *
 * The matrix is cut into tiles of columns and chunks of rows. A block sums one tile of one chunk:
 * neighbouring threads take neighbouring columns, and where columns are few the threads that are
 * left take other rows. Few rows at a time are added in float32, those sums in double, so that the
 * result is as good as a sum in double and as fast as reading. Sums of chunks go through
 * dp_cuda.partials; a warp for each column adds them up.
 *
 *      columns ->      The order of additions depends on the size of a block and on the number of
 *   c  +---+---+       chunks, never on which block comes first: the same bits on every run.
 *   h  |   |   |  -> partials [chunks, N, cols] -> finish(column, sums)
 *   u  +---+---+
 *   n  |   |   |
 *   k  +---+---+
 */
#ifndef DP_KERNELS_CUDA_COLUMNS_CUH
#define DP_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/stream/launch.h"

enum {
    DP_FEW_ROWS = 8,      /* that are added in float32 */
    DP_ROWS_AHEAD = 8,    /* read before they are added, at most */
    DP_LEAST_ROWS = 16,   /* of a thread */
    DP_COLUMN_BLOCKS = 3, /* at least, on a processor at a time: so 80 registers a thread */
    DP_COLUMN_PACK = 4    /* columns of a thread that takes two sums of each: what fits into them */
};

/* How most sums of few rows are added to those of all. */
struct dp_plain_fold {
    template <int N, int P, typename S>
    __device__ void fold(double (&sums)[N][P], const float (&few)[N][P], const S &unused,
                         int rows) const
    {
        (void)unused;
        (void)rows;
#pragma unroll
        for (int k = 0; k < N * P; k++) {
            sums[k / P][k % P] += (double)few[k / P][k % P];
        }
    }
};

/* Adds rows begin, begin + step ... of P columns: F::load(col) gives what is needed of them,
 * F::begin(state, row, col) starts few rows, F::add(few[N][P], state, row, col) adds one of them,
 * and F::fold(sums, few, state, rows) adds them to the sums. F::AHEAD: rows whose reads are under
 * way at a time, as many as there are registers for. */
template <int N, int P, typename F>
static __device__ void dp_column_chunk(double (&sums)[N][P], const F &f, size_t col, size_t begin,
                                       size_t end, size_t step)
{
    size_t row = begin;

    if (begin >= end) {
        return; /* there may be no row to load from */
    }
    typename F::state state = f.load(col);
    while (row < end) {
        float few[N][P] = {};
        int i = 0;
        f.begin(state, row, col);
        if (end - row > (DP_FEW_ROWS - 1) * step) { /* without asking, reads need not wait */
#pragma unroll F::AHEAD
            for (; i < DP_FEW_ROWS; i++, row += step) {
                f.add(few, state, row, col);
            }
        } else {
#pragma unroll 1
            for (; row < end; i++, row += step) {
                f.add(few, state, row, col);
            }
        }
        f.fold(sums, few, state, i);
    }
}

template <int N, int P, typename F>
static __global__ void __launch_bounds__(DP_THREADS, DP_COLUMN_BLOCKS)
    dp_columns_kernel(double *partials, F f, size_t rows, size_t cols, size_t chunks)
{
    DP_SHARED(double, shared); /* [N, P, threads] */
    const size_t packs = cols / P;
    const unsigned width = packs < blockDim.x ? (unsigned)packs : blockDim.x;
    const unsigned depth = blockDim.x / width, x = threadIdx.x % width, y = threadIdx.x / width;
    const size_t tiles = (packs + width - 1) / width;

    for (size_t item = blockIdx.x; item < tiles * chunks; item += gridDim.x) {
        const size_t pack = item % tiles * width + x, chunk = item / tiles;
        const size_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
        double sums[N][P] = {};
        if (y < depth && pack < packs) {
            dp_column_chunk(sums, f, pack * P, begin + y, end, depth);
        }
        for (int k = 0; k < N * P; k++) {
            shared[(size_t)k * blockDim.x + threadIdx.x] = sums[k / P][k % P];
        }
        __syncthreads();
        for (int k = 0; y == 0 && pack < packs && k < N * P; k++) {
            double total = 0;
            for (unsigned i = 0; i < depth; i++) {
                total += shared[(size_t)k * blockDim.x + i * width + x];
            }
            partials[(chunk * N + (size_t)(k / P)) * cols + pack * P + (size_t)(k % P)] = total;
        }
        __syncthreads();
    }
}

/* One warp a column. G::done(column, sums[N]) runs once for each. */
template <int N, typename G>
static __global__ void dp_columns_finish_kernel(const double *partials, G g, size_t cols,
                                                size_t chunks)
{
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;

    for (size_t col = dp_thread() / (size_t)warpSize; col < cols; col += warps) {
        double sums[N] = {};
        for (size_t chunk = lane; chunk < chunks; chunk += (size_t)warpSize) {
            for (int n = 0; n < N; n++) {
                sums[n] += partials[(chunk * N + (size_t)n) * cols + col];
            }
        }
        for (int n = 0; n < N; n++) {
            sums[n] = dp_warp_sum(sums[n]);
        }
        if (lane == 0) {
            g.done(col, sums);
        }
    }
}

/* Chunks that fill the GPU, which runs `resident` blocks at a time; none with too few rows, all
 * with room for their sums. */
template <int N, int P>
static size_t dp_column_chunks(size_t partials, size_t resident, size_t rows, size_t cols)
{
    const size_t packs = cols / P, width = dp_least(packs, DP_THREADS);
    const size_t tiles = (packs + width - 1) / width;
    const size_t useful = rows / (DP_THREADS / width * DP_LEAST_ROWS);
    const size_t room = partials / (N * cols);
    const size_t chunks = dp_least(resident / tiles, dp_least(useful, room));

    return chunks > 0 ? chunks : 1;
}

/* N cols <= DP_CUDA_PARTIALS; cols a multiple of P, and above 0. */
template <int N, int P, typename F, typename G>
static dp_status dp_columns_sum(struct dp_stream *s, size_t rows, size_t cols, F f, G g)
{
    const size_t shared = N * P * DP_THREADS * sizeof(double);
    const size_t resident = dp_resident(s, dp_columns_kernel<N, P, F>, DP_THREADS, shared);
    const size_t chunks =
        dp_column_chunks<N, P>(dp_cuda_partials(dp_cuda_of(s)->processors), resident, rows, cols);
    double *partials = dp_cuda_of(s)->partials;

    DP_LAUNCH((dp_columns_kernel<N, P, F>), dp_blocks(s, cols / P * chunks * DP_THREADS),
              DP_THREADS, shared, s, partials, f, rows, cols, chunks);
    DP_TRY(DP_CUDA(cudaGetLastError()));
    DP_LAUNCH((dp_columns_finish_kernel<N, G>), dp_blocks(s, cols * 32), DP_THREADS, 0, s,
              (const double *)partials, g, cols, chunks);
    return DP_CUDA(cudaGetLastError());
}

#endif
