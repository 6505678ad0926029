/*
 * codes.cu - smaller forms of a gradient: see kernels/ops.h for the contracts.
 *
 * Bytes moved per element: narrow and widen 6; quantize reads 4 (the second time from the cache)
 * and writes 1, dequantize 5; take_signs 8, put_signs 4. quantize also makes a random number for
 * each, of which four cost as much as one. All give the bits of `ref`, but for scales of signs,
 * whose sums are added in another order.
 */
#include <float.h>

#include "base/random.h"
#include "kernels/cuda/stream/launch.h"

/* ---- 16 bits; a NaN becomes the one of `ref`, whatever the hardware would make of it ---- */

enum { SIGN_16 = 0x8000, HALF_NAN = 0x7e00, BFLOAT_NAN = 0x7fc0 };

struct half_code {
    __device__ uint16_t round(float x) const
    {
        const unsigned sign = __float_as_uint(x) >> 16 & SIGN_16;
        return x != x ? (uint16_t)(sign | HALF_NAN) : __half_as_ushort(__float2half_rn(x));
    }
    __device__ float value(uint16_t bits) const
    {
        return __half2float(__ushort_as_half(bits));
    }
};

struct bfloat_code {
    __device__ uint16_t round(float x) const
    {
        const unsigned sign = __float_as_uint(x) >> 16 & SIGN_16;
        return x != x ? (uint16_t)(sign | BFLOAT_NAN)
                      : __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }
    __device__ float value(uint16_t bits) const
    {
        return __bfloat162float(__ushort_as_bfloat16(bits));
    }
};

/* Elements of a thread: 16 bytes of the wide array, and 8 of the narrow one. */
enum { CAST_PACK = 4 };

template <typename C> struct narrowing {
    C code;
    __device__ uint16_t operator()(float x) const
    {
        return code.round(x);
    }
};

template <typename C> struct widening {
    C code;
    __device__ float operator()(uint16_t bits) const
    {
        const float value = code.value(bits);
        const unsigned sign = (unsigned)(bits & SIGN_16) << 16;
        return value != value ? __uint_as_float(sign | 0x7fc00000u) : value;
    }
};

template <typename Y, typename X, int P, typename F>
static __global__ void cast_kernel(Y *y, const X *x, size_t count, F f)
{
    const size_t packs = count / P;

    for (size_t i = dp_thread(); i < packs; i += dp_threads()) {
        const dp_pack<X, P> from = reinterpret_cast<const dp_pack<X, P> *>(x)[i];
        dp_pack<Y, P> to;
#pragma unroll
        for (int p = 0; p < P; p++) {
            to.at[p] = f(from.at[p]);
        }
        reinterpret_cast<dp_pack<Y, P> *>(y)[i] = to;
    }
    for (size_t i = packs * P + dp_thread(); i < count; i += dp_threads()) {
        y[i] = f(x[i]);
    }
}

template <typename Y, typename X, typename F>
static dp_status cast(struct dp_stream *s, Y *y, const X *x, size_t count, F f)
{
    const size_t threads = (count + CAST_PACK - 1) / CAST_PACK;

    if (count == 0) {
        return DP_OK;
    }
    if ((uintptr_t)x % (CAST_PACK * sizeof(X)) == 0 &&
        (uintptr_t)y % (CAST_PACK * sizeof(Y)) == 0) {
        DP_LAUNCH((cast_kernel<Y, X, CAST_PACK, F>), dp_blocks(s, threads), DP_THREADS, 0, s, y, x,
                  count, f);
    } else {
        DP_LAUNCH((cast_kernel<Y, X, 1, F>), dp_blocks(s, count), DP_THREADS, 0, s, y, x, count, f);
    }
    return DP_CUDA(cudaGetLastError());
}

extern "C" dp_status dp_cuda_narrow(struct dp_stream *s, uint16_t *y, const float *x, size_t count,
                                    enum dp_type type)
{
    return type == DP_TYPE_BF16 ? cast(s, y, x, count, narrowing<bfloat_code>{})
                                : cast(s, y, x, count, narrowing<half_code>{});
}

extern "C" dp_status dp_cuda_widen(struct dp_stream *s, float *y, const uint16_t *x, size_t count,
                                   enum dp_type type)
{
    return type == DP_TYPE_BF16 ? cast(s, y, x, count, widening<bfloat_code>{})
                                : cast(s, y, x, count, widening<half_code>{});
}

/* ---- 8 bits: a warp a block of numbers ---- */

static __device__ __forceinline__ unsigned magnitude_bits(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* Bits of magnitudes compare as magnitudes do, and those of infinity and NaN are above all
 * others. */
static __device__ float scale_of(const float *x, size_t n)
{
    unsigned most = 0;

    for (size_t i = threadIdx.x % (unsigned)warpSize; i < n; i += (size_t)warpSize) {
        const unsigned bits = magnitude_bits(x[i]);
        most = bits > most ? bits : most;
    }
    for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
        const unsigned other = __shfl_xor_sync(~0u, most, lanes);
        most = other > most ? other : most;
    }
    if (most >= 0x7f800000u) {
        return __uint_as_float(0x7fc00000u);
    }
    return __uint_as_float(most) / 127.0f < FLT_MIN ? 0 : __uint_as_float(most) / 127.0f;
}

static __device__ __forceinline__ int8_t rounded(float x, float inverse, uint32_t bits)
{
    const float q = floorf(x * inverse + dp_random_unit(bits));

    return (int8_t)(q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q);
}

/* Numbers i .. i + 3, of which those below n are there. */
static __device__ __forceinline__ void read_four(float *values, const float *x, size_t i, size_t n)
{
    if (i < n && i + 4 <= n && (uintptr_t)(x + i) % 16 == 0) {
        dp_read<4>(values, x + i);
        return;
    }
#pragma unroll
    for (size_t p = 0; p < 4; p++) {
        values[p] = i + p < n ? x[i + p] : 0.0f; /* i may have wrapped to in front of x */
    }
}

typedef dp_pack<int8_t, 4> four_codes;

/* The other way round. */
static __device__ __forceinline__ void write_four(int8_t *y, const four_codes &codes, size_t i,
                                                  size_t n)
{
    if (i < n && i + 4 <= n && (uintptr_t)(y + i) % 4 == 0) {
        *reinterpret_cast<four_codes *>(y + i) = codes;
        return;
    }
#pragma unroll
    for (size_t p = 0; p < 4; p++) {
        if (i + p < n) {
            y[i + p] = codes.at[p];
        }
    }
}

/* The numbers of a block; a thread takes those that one block of random numbers is for. */
static __device__ void round_block(int8_t *y, const float *x, size_t n, float scale,
                                   const struct dp_key &key, uint64_t first)
{
    const size_t lead = (size_t)(first % 4), lane = threadIdx.x % (unsigned)warpSize;
    const float inverse = 1.0f / scale;

    for (size_t four = lane; four * 4 < n + lead; four += (size_t)warpSize) {
        const size_t i = four * 4 - lead; /* wraps to above n in front of the block */
        uint32_t random[4];
        float values[4];
        four_codes codes;
        dp_random_block(key.seed, key.what, key.step, first / 4 + four, random);
        read_four(values, x, i, n);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            codes.at[p] = scale > 0 ? rounded(values[p], inverse, random[p]) : (int8_t)0;
        }
        write_four(y, codes, i, n);
    }
}

static __global__ void quantize_kernel(int8_t *y, float *scales, const float *x, size_t block,
                                       size_t count, const struct dp_key key)
{
    const size_t warps = dp_threads() / (size_t)warpSize;

    for (size_t b = dp_thread() / (size_t)warpSize; b * block < count; b += warps) {
        const size_t at = b * block, n = count - at < block ? count - at : block;
        const float scale = scale_of(x + at, n);
        if (threadIdx.x % (unsigned)warpSize == 0) {
            scales[b] = scale;
        }
        round_block(y + at, x + at, n, scale, key, key.first + at);
    }
}

extern "C" dp_status dp_cuda_quantize(struct dp_stream *s, int8_t *y, float *scales, const float *x,
                                      size_t block, size_t count, const struct dp_key *key)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_LAUNCH(quantize_kernel, dp_blocks(s, (count + block - 1) / block * 32), DP_THREADS, 0, s, y,
              scales, x, block, count, *key);
    return DP_CUDA(cudaGetLastError());
}

/* P neighbours a thread; block and count are multiples of P. */
template <int P>
static __global__ void dequantize_kernel(float *y, const int8_t *x, const float *scales,
                                         size_t block, size_t count)
{
    const size_t lane = dp_thread() % (size_t)warpSize, warps = dp_threads() / (size_t)warpSize;

    for (size_t b = dp_thread() / (size_t)warpSize; b * block < count; b += warps) {
        const size_t end = count - b * block < block ? count : (b + 1) * block;
        const float scale = scales[b];
        for (size_t i = b * block + lane * P; i < end; i += (size_t)warpSize * P) {
            const dp_pack<int8_t, P> codes = *reinterpret_cast<const dp_pack<int8_t, P> *>(x + i);
            float values[P];
#pragma unroll
            for (int p = 0; p < P; p++) {
                values[p] = (float)codes.at[p] * scale;
            }
            dp_write<P>(y + i, values);
        }
    }
}

extern "C" dp_status dp_cuda_dequantize(struct dp_stream *s, float *y, const int8_t *x,
                                        const float *scales, size_t block, size_t count)
{
    if (count == 0) {
        return DP_OK;
    }
    if (block % 4 == 0 && count % 4 == 0 && dp_aligned(y) && (uintptr_t)x % 4 == 0) {
        DP_LAUNCH(dequantize_kernel<4>, dp_blocks(s, (count + block - 1) / block * 32), DP_THREADS,
                  0, s, y, x, scales, block, count);
    } else {
        DP_LAUNCH(dequantize_kernel<1>, dp_blocks(s, (count + block - 1) / block * 32), DP_THREADS,
                  0, s, y, x, scales, block, count);
    }
    return DP_CUDA(cudaGetLastError());
}

/* ---- one bit: a warp takes DP_SIGNS numbers, a lane those of a word ---- */

enum { WORDS = DP_SIGNS / 32 };

static __device__ __forceinline__ float with_sign(float scale, unsigned negative)
{
    return __uint_as_float(__float_as_uint(scale) ^ negative << 31);
}

static __device__ void sign_scales(struct dp_signs *y, const float *x, size_t n)
{
    const size_t lane = threadIdx.x % (unsigned)warpSize;

    for (size_t b = 0; b < DP_SIGN_SCALES; b++) {
        const size_t end = (b + 1) * DP_BLOCK < n ? (b + 1) * DP_BLOCK : n;
        double sum = 0;
        for (size_t i = b * DP_BLOCK + lane; i < end; i += (size_t)warpSize) {
            sum += fabs((double)x[i]);
        }
        sum = dp_warp_sum(sum);
        if (lane == 0) {
            y->scale[b] = b * DP_BLOCK < n ? (float)(sum / (double)(end - b * DP_BLOCK)) : 0;
        }
    }
}

static __device__ void sign_words(struct dp_signs *y, float *x, size_t n)
{
    for (size_t j = threadIdx.x % (unsigned)warpSize; j < WORDS; j += (size_t)warpSize) {
        uint32_t word = 0;
        for (size_t k = 0; k < 32 && 32 * k + j < n; k++) {
            const size_t i = 32 * k + j;
            const unsigned negative = __float_as_uint(x[i]) >> 31;
            word |= negative << k;
            x[i] -= with_sign(y->scale[i / DP_BLOCK], negative);
        }
        y->words[j] = word;
    }
}

static __global__ void take_signs_kernel(struct dp_signs *y, float *x, size_t count)
{
    const size_t warps = dp_threads() / (size_t)warpSize;

    for (size_t c = dp_thread() / (size_t)warpSize; c * DP_SIGNS < count; c += warps) {
        const size_t at = c * DP_SIGNS, n = dp_least(count - at, DP_SIGNS);
        sign_scales(&y[c], x + at, n);
        __syncwarp(); /* all lanes read the scales that the first one has written */
        sign_words(&y[c], x + at, n);
    }
}

extern "C" dp_status dp_cuda_take_signs(struct dp_stream *s, struct dp_signs *y, float *x,
                                        size_t count)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_LAUNCH(take_signs_kernel, dp_blocks(s, (count + DP_SIGNS - 1) / DP_SIGNS * 32), DP_THREADS,
              0, s, y, x, count);
    return DP_CUDA(cudaGetLastError());
}

static __global__ void put_signs_kernel(float *y, const struct dp_signs *x, size_t count)
{
    for (size_t at = dp_thread(); at < count; at += dp_threads()) {
        const struct dp_signs *signs = &x[at / DP_SIGNS];
        const size_t i = at % DP_SIGNS;
        y[at] = with_sign(signs->scale[i / DP_BLOCK], signs->words[i % 32] >> (i / 32) & 1);
    }
}

extern "C" dp_status dp_cuda_put_signs(struct dp_stream *s, float *y, const struct dp_signs *x,
                                       size_t count)
{
    if (count == 0) {
        return DP_OK;
    }
    DP_LAUNCH(put_signs_kernel, dp_blocks(s, count), DP_THREADS, 0, s, y, x, count);
    return DP_CUDA(cudaGetLastError());
}
