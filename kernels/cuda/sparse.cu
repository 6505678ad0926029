/*
 * sparse.cu - a few numbers out of many: see kernels/ops.h for the contracts.
 *
 * The k-th largest magnitude is found digit by digit, as in kernels/cpu/sparse.c: a histogram of
 * the upper 11 bits, of the next 11 among those that share them, of the last 9. Then warps count
 * what they will take of their chunks of the array, one warp adds that up, and all take. So places
 * come out in order, and it does not matter which block comes first: counts are whole numbers. Few
 * numbers are cut into few chunks, which that one warp goes over in turn.
 *
 * take_largest reads the array five times, 20 bytes an element, and writes what it takes; the
 * others move some 16 bytes for each place.
 */
#include "base/random.h"
#include "kernels/cuda/stream/launch.h"

enum { BINS = 2048, CHUNKS = 4096, CHUNK_LEAST = 256, WARP = 32 };

/* Which bits a histogram looks at. */
struct level {
    int shift;
    unsigned bins;
};

/* Lies in dp_cuda.partials. Counts are below 2^32. */
struct selection {
    unsigned known, mask; /* upper bits of the threshold, and which ones they are */
    unsigned left;        /* how many of those that share them are taken */
    unsigned bins[BINS];
    unsigned above[CHUNKS], equal[CHUNKS]; /* in each chunk; then: where it begins to write, and how
                                              many of those equal to the threshold it takes */
};

static_assert(sizeof(struct selection) <= DP_CUDA_PARTIALS * sizeof(double), "room in partials");

static __device__ __forceinline__ unsigned magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

static __global__ void begin_kernel(struct selection *s, unsigned k)
{
    for (size_t i = dp_thread(); i < BINS; i += dp_threads()) {
        s->bins[i] = 0;
    }
    if (dp_thread() == 0) {
        s->known = s->mask = 0;
        s->left = k;
    }
}

static __global__ void histogram_kernel(struct selection *s, const float *x, size_t count,
                                        const struct level level)
{
    DP_SHARED(unsigned, bins); /* [level.bins] */
    const unsigned known = s->known, mask = s->mask;

    for (unsigned i = threadIdx.x; i < level.bins; i += blockDim.x) {
        bins[i] = 0;
    }
    __syncthreads();
    for (size_t i = dp_thread(); i < count; i += dp_threads()) {
        const unsigned m = magnitude(x[i]);
        if ((m & mask) == known) {
            atomicAdd(&bins[m >> level.shift & (level.bins - 1)], 1u);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < level.bins; i += blockDim.x) {
        if (bins[i] != 0) {
            atomicAdd(&s->bins[i], bins[i]);
        }
    }
}

/* One warp. Finds the highest bin that, with those above it, has `left` numbers: the next bits of
 * the threshold. */
static __global__ void next_bits_kernel(struct selection *s, const struct level level)
{
    const unsigned lane = threadIdx.x, lanes = (unsigned)warpSize;
    unsigned left = s->left, top = level.bins; /* bins below `top` have not been looked at */

    if (dp_thread() >= lanes) {
        return;
    }
    for (;;) { /* all numbers together are enough, so it ends */
        const unsigned here = s->bins[top - 1 - lane];
        const unsigned sum = dp_warp_scan(here);
        const unsigned enough = __ballot_sync(~0u, sum >= left);
        if (enough != 0) {
            const int found = __ffs((int)enough) - 1;
            top -= (unsigned)found;
            left -= __shfl_sync(~0u, sum - here, found);
            break;
        }
        left -= __shfl_sync(~0u, sum, warpSize - 1);
        top -= lanes;
    }
    __syncwarp();
    for (unsigned i = lane; i < level.bins; i += lanes) {
        s->bins[i] = 0;
    }
    if (lane == 0) {
        s->known |= (top - 1) << level.shift;
        s->mask |= (level.bins - 1) << level.shift;
        s->left = left;
    }
}

/* How many, a multiple of WARP. */
static size_t chunks_of(size_t count)
{
    const size_t rounds = count / CHUNK_LEAST / WARP;

    return dp_least(rounds > 0 ? rounds * WARP : (size_t)WARP, CHUNKS);
}

/* Warps take chunks, whose lengths differ by one at most. */
static __device__ __forceinline__ size_t chunk_begin(size_t chunk, size_t count, size_t chunks)
{
    return count * chunk / chunks;
}

static __global__ void count_kernel(struct selection *s, const float *x, size_t count,
                                    size_t chunks)
{
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;
    const unsigned threshold = s->known;

    for (size_t c = dp_thread() / (size_t)warpSize; c < chunks; c += warps) {
        const size_t end = chunk_begin(c + 1, count, chunks);
        unsigned above = 0, equal = 0;
        for (size_t i = chunk_begin(c, count, chunks) + lane; i < end; i += (size_t)warpSize) {
            above += magnitude(x[i]) > threshold ? 1 : 0;
            equal += magnitude(x[i]) == threshold ? 1 : 0;
        }
        above = dp_warp_sum(above);
        equal = dp_warp_sum(equal);
        if (lane == 0) {
            s->above[c] = above;
            s->equal[c] = equal;
        }
    }
}

/* One warp. Of those equal to the threshold the first `left` are taken. */
static __global__ void share_out_kernel(struct selection *s, unsigned chunks)
{
    const unsigned lane = threadIdx.x, lanes = (unsigned)warpSize;
    unsigned at = 0, seen = 0; /* places, and equal ones, of the chunks before */
    const unsigned left = s->left;

    if (dp_thread() >= lanes) {
        return;
    }
    for (unsigned c = lane; c < chunks; c += lanes) {
        const unsigned above = s->above[c], equal = s->equal[c];
        const unsigned before = seen + dp_warp_scan(equal) - equal;
        const unsigned room = before < left ? left - before : 0;
        const unsigned taken = above + (equal < room ? equal : room);
        const unsigned end = at + dp_warp_scan(taken);
        s->equal[c] = equal < room ? equal : room;
        s->above[c] = end - taken;
        at = __shfl_sync(~0u, end, warpSize - 1);
        seen = __shfl_sync(~0u, before + equal, warpSize - 1);
    }
}

static __global__ void take_kernel(const struct selection *s, uint32_t *index, float *value,
                                   float *x, size_t count, size_t chunks)
{
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;
    const unsigned threshold = s->known, before = dp_lanes_before();

    for (size_t c = dp_thread() / (size_t)warpSize; c < chunks; c += warps) {
        const size_t end = chunk_begin(c + 1, count, chunks);
        unsigned at = s->above[c], equal = s->equal[c];
        for (size_t row = chunk_begin(c, count, chunks); row < end; row += (size_t)warpSize) {
            const size_t i = row + lane;
            const unsigned m = i < end ? magnitude(x[i]) : 0;
            const unsigned ties = __ballot_sync(~0u, i < end && m == threshold);
            const bool tie = i < end && m == threshold && (unsigned)__popc(ties & before) < equal;
            const bool takes = tie || (i < end && m > threshold);
            const unsigned takers = __ballot_sync(~0u, takes);
            if (takes) {
                const unsigned place = at + (unsigned)__popc(takers & before);
                index[place] = (uint32_t)i;
                value[place] = x[i];
                x[i] = 0;
            }
            at += (unsigned)__popc(takers);
            equal -= equal < (unsigned)__popc(ties) ? equal : (unsigned)__popc(ties);
        }
    }
}

extern "C" dp_status dp_cuda_take_largest(struct dp_stream *s, uint32_t *index, float *value,
                                          float *x, size_t k, size_t count)
{
    static const struct level levels[] = {{20, BINS}, {9, BINS}, {0, 512}};
    struct selection *selection = (struct selection *)(void *)dp_cuda_of(s)->partials;
    const size_t chunks = chunks_of(count), blocks = dp_blocks(s, chunks * WARP);

    if (k == 0) {
        return DP_OK;
    }
    DP_LAUNCH(begin_kernel, 1, DP_THREADS, 0, s, selection, (unsigned)k);
    for (const struct level &level : levels) {
        DP_LAUNCH(histogram_kernel, dp_blocks(s, count), DP_THREADS, BINS * sizeof(unsigned), s,
                  selection, x, count, level);
        DP_LAUNCH(next_bits_kernel, 1, WARP, 0, s, selection, level);
    }
    DP_LAUNCH(count_kernel, blocks, DP_THREADS, 0, s, selection, x, count, chunks);
    DP_LAUNCH(share_out_kernel, 1, WARP, 0, s, selection, (unsigned)chunks);
    DP_LAUNCH(take_kernel, blocks, DP_THREADS, 0, s, (const struct selection *)selection, index,
              value, x, count, chunks);
    return DP_CUDA(cudaGetLastError());
}

/* ---- places that are given ---- */

static __global__ void sample_kernel(uint32_t *index, size_t k, size_t count,
                                     const struct dp_key key)
{
    for (size_t i = dp_thread(); i < k; i += dp_threads()) {
        const uint64_t begin = (uint64_t)i * count / k, end = ((uint64_t)i + 1) * count / k;
        const uint32_t bits = dp_random_u32(key.seed, key.what, key.step, key.first + i);
        index[i] = (uint32_t)(begin + (uint64_t)bits * (end - begin) / 4294967296u);
    }
}

extern "C" dp_status dp_cuda_sample(struct dp_stream *s, uint32_t *index, size_t k, size_t count,
                                    const struct dp_key *key)
{
    if (k == 0) {
        return DP_OK;
    }
    DP_LAUNCH(sample_kernel, dp_blocks(s, k), DP_THREADS, 0, s, index, k, count, *key);
    return DP_CUDA(cudaGetLastError());
}

static __global__ void take_at_kernel(float *value, float *x, const uint32_t *index, size_t k)
{
    for (size_t i = dp_thread(); i < k; i += dp_threads()) {
        value[i] = x[index[i]];
        x[index[i]] = 0;
    }
}

extern "C" dp_status dp_cuda_take_at(struct dp_stream *s, float *value, float *x,
                                     const uint32_t *index, size_t k)
{
    if (k == 0) {
        return DP_OK;
    }
    DP_LAUNCH(take_at_kernel, dp_blocks(s, k), DP_THREADS, 0, s, value, x, index, k);
    return DP_CUDA(cudaGetLastError());
}

/* No place comes twice. */
static __global__ void add_at_kernel(float *y, const uint32_t *index, const float *value, size_t k)
{
    for (size_t i = dp_thread(); i < k; i += dp_threads()) {
        y[index[i]] += value[i];
    }
}

extern "C" dp_status dp_cuda_add_at(struct dp_stream *s, float *y, const uint32_t *index,
                                    const float *value, size_t k)
{
    if (k == 0) {
        return DP_OK;
    }
    DP_LAUNCH(add_at_kernel, dp_blocks(s, k), DP_THREADS, 0, s, y, index, value, k);
    return DP_CUDA(cudaGetLastError());
}
