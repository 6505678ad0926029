/*
 * dense.cu - column sums: the gradient of a bias. The products are in matmul_cublas.c.
 *
 * Bytes moved per element of type size e: sum_rows e; with a rectifier that is undone on the way
 * 3 e, in place of 4 e for both.
 */
#include "kernels/cuda/columns.cuh"

template <typename T, int P> struct row_adder : dp_plain_fold {
    enum { AHEAD = DP_ROWS_AHEAD };
    struct state {
    };
    const T *dy;
    size_t stride;
    row_adder(const T *first, size_t cols) : dy(first), stride(cols)
    {
    }
    __device__ state load(size_t col) const
    {
        (void)col;
        return state{};
    }
    __device__ void begin(const state &unused, size_t row, size_t col) const
    {
        (void)unused;
        (void)row;
        (void)col;
    }
    __device__ void add(float (&sums)[1][P], const state &unused, size_t row, size_t col) const
    {
        (void)unused;
        float values[P];
        dp_read<P>(values, dy + row * stride + col);
#pragma unroll
        for (int p = 0; p < P; p++) {
            sums[0][p] += values[p];
        }
    }
};

/* Of g, which is made here. */
template <typename T, int P> struct masked_row_adder : dp_plain_fold {
    enum { AHEAD = 4 };
    struct state {
    };
    const T *dy, *y;
    T *g;
    size_t stride;
    __device__ state load(size_t col) const
    {
        (void)col;
        return state{};
    }
    __device__ void begin(const state &unused, size_t row, size_t col) const
    {
        (void)unused;
        (void)row;
        (void)col;
    }
    __device__ void add(float (&sums)[1][P], const state &unused, size_t row, size_t col) const
    {
        const size_t at = row * stride + col;
        float values[P], outs[P];
        (void)unused;
        dp_read_ahead<P>(values, dy + at);
        dp_read_ahead<P>(outs, y + at);
#pragma unroll
        for (int p = 0; p < P; p++) {
            values[p] = outs[p] > 0 ? values[p] : 0.0f;
            sums[0][p] += values[p];
        }
        dp_write<P>(g + at, values);
    }
};

struct bias_gradient {
    float *db;
    float keep;
    __device__ void done(size_t col, const double *sums) const
    {
        db[col] = (float)(keep != 0 ? (double)db[col] + sums[0] : sums[0]);
    }
};

/* As many columns at a time as there is room for. */
template <typename T, int P>
static dp_status sum_rows(struct dp_stream *s, float *db, const T *dy, size_t rows, size_t cols,
                          float keep)
{
    for (size_t at = 0; at < cols; at += DP_CUDA_PARTIALS) {
        const size_t count = dp_least(cols - at, DP_CUDA_PARTIALS);
        DP_TRY((dp_columns_sum<1, P>(s, rows, count, row_adder<T, P>(dy + at, cols),
                                     bias_gradient{db + at, keep})));
    }
    return DP_OK;
}

template <typename T, int P>
static dp_status sum_masked(struct dp_stream *s, const struct dp_dense_backward &b)
{
    for (size_t at = 0; at < b.out; at += DP_CUDA_PARTIALS) {
        const size_t count = dp_least(b.out - at, DP_CUDA_PARTIALS);
        const masked_row_adder<T, P> adder = {
            {}, (const T *)b.dy + at, (const T *)b.y + at, (T *)b.g + at, b.out};
        DP_TRY((dp_columns_sum<1, P>(s, b.rows, count, adder, bias_gradient{b.db + at, b.keep})));
    }
    return DP_OK;
}

extern "C" dp_status dp_cuda_sum_masked(struct dp_stream *s, const struct dp_dense_backward *b)
{
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        return b->out % P == 0 && dp_aligned(b->dy) && dp_aligned(b->y) && dp_aligned(b->g)
                   ? sum_masked<T, P>(s, *b)
                   : sum_masked<T, 1>(s, *b);
    });
}

extern "C" dp_status dp_cuda_sum_rows(struct dp_stream *s, float *db, const void *dy, size_t rows,
                                      size_t cols, float keep)
{
    DP_BY_TYPE(s->type, T, {
        constexpr int P = dp_pack_of<T>();
        const T *typed = (const T *)dy;
        return cols % P == 0 && dp_aligned(dy) ? sum_rows<T, P>(s, db, typed, rows, cols, keep)
                                               : sum_rows<T, 1>(s, db, typed, rows, cols, keep);
    });
}
