/*
 * lowrank.c - the product of two thin matrices, and what it leaves of a third.
 *
 * 12 bytes move per element; rows of both results stay in the first-level cache while the `rank`
 * products are added to them.
 */
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

struct split {
    float *sum, *kept;
    const float *p, *q, *mine;
    size_t cols, rank;
};

DP_HOT static void split_part(void *arg, size_t begin, size_t end)
{
    const struct split *t = arg;
    const size_t cols = t->cols;

    for (size_t i = begin; i < end; i++) {
        float *restrict sum = t->sum + i * cols;
        float *restrict kept = t->kept + i * cols;
        memset(sum, 0, cols * sizeof(*sum));
        for (size_t k = 0; k < t->rank; k++) {
            const float p = t->p[i * t->rank + k];
            const float *restrict q = t->q + k * cols;
            const float *restrict mine = t->mine + k * cols;
            for (size_t j = 0; j < cols; j++) {
                sum[j] += p * q[j];
                kept[j] -= p * mine[j];
            }
        }
    }
}

dp_status dp_cpu_lowrank_split(struct dp_stream *s, float *sum, float *kept, const float *p,
                               const float *q, const float *mine, size_t rows, size_t cols,
                               size_t rank)
{
    struct split t = {sum, kept, p, q, mine, cols, rank};

    dp_parallel_rows(s->threads, rows, cols, 1, split_part, &t);
    return DP_OK;
}
