/*
 * sum_cpu.c - the sum of many arrays in the order of the binary tree, each read once.
 *
 * The arrays are cut into pieces that stay in the first-level cache: partial sums never reach
 * memory, so an element costs 4 (n + outs) bytes of traffic for any n.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

enum { PIECE = 1024 };

/* y may be any of the inputs: an element is written after all its inputs are read. n <= 4. */
DP_HOT static void sum_few(float *y, const float *const *xs, int n, size_t begin, size_t count)
{
    const float *a = xs[0] + begin, *b = xs[n > 1 ? 1 : 0] + begin;
    const float *c = xs[n > 2 ? 2 : 0] + begin, *d = xs[n > 3 ? 3 : 0] + begin;

    switch (n) {
    case 1:
        memmove(y, a, count * sizeof(*y));
        return;
    case 2:
        DP_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            y[i] = a[i] + b[i];
        }
        return;
    case 3:
        DP_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            y[i] = (a[i] + b[i]) + c[i];
        }
        return;
    default:
        DP_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            y[i] = (a[i] + b[i]) + (c[i] + d[i]);
        }
        return;
    }
}

/* The same into as many arrays as there are inputs, 2 to 4, as ranks that share memory do. Each
 * element is written right after it is read. Later its cache line would have left the nearest
 * caches, or belong to another core again, and be loaded a second time (1 MB of two cores: 25 us
 * instead of 39). */
DP_HOT static void sum_and_share(float *const *ys, const float *const *xs, int n, size_t begin,
                                 size_t count)
{
    const float *a = xs[0] + begin, *b = xs[1] + begin;
    const float *c = xs[n > 2 ? 2 : 0] + begin, *d = xs[n > 3 ? 3 : 0] + begin;
    float *p = ys[0] + begin, *q = ys[1] + begin;
    float *r = ys[n > 2 ? 2 : 0] + begin, *s = ys[n > 3 ? 3 : 0] + begin;

    switch (n) {
    case 2:
        DP_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            p[i] = q[i] = a[i] + b[i];
        }
        return;
    case 3:
        DP_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            p[i] = q[i] = r[i] = (a[i] + b[i]) + c[i];
        }
        return;
    default:
        DP_INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            p[i] = q[i] = r[i] = s[i] = (a[i] + b[i]) + (c[i] + d[i]);
        }
        return;
    }
}

DP_HOT static void add_piece(float *restrict y, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

/* sum = the tree over n arrays; `sum` is none of them. The recursion is as deep as n has binary
 * digits. */
static void sum_piece(float *sum, const float *const *xs, int n, size_t begin, size_t count)
{
    _Alignas(DP_MEM_ALIGN) float right[PIECE];
    int left = 4;

    if (n <= 4) {
        sum_few(sum, xs, n, begin, count);
        return;
    }
    while (left * 2 < n) {
        left *= 2;
    }
    sum_piece(sum, xs, left, begin, count);
    sum_piece(right, xs + left, n - left, begin, count);
    add_piece(sum, right, count);
}

struct sum {
    float *const *ys;
    const float *const *xs;
    int outs, n;
};

/* Outputs are written after all inputs of their piece are read, since they may be inputs. */
static void sum_part(void *arg, size_t begin, size_t end)
{
    const struct sum *t = arg;
    _Alignas(DP_MEM_ALIGN) float many[PIECE];

    if (t->outs == t->n && t->n >= 2 && t->n <= 4) {
        sum_and_share(t->ys, t->xs, t->n, begin, end - begin);
        return;
    }
    for (size_t i = begin; i < end; i += PIECE) {
        const size_t count = end - i < PIECE ? end - i : PIECE;
        const float *sum = many;
        if (t->n <= 4) {
            sum_few(t->ys[0] + i, t->xs, t->n, i, count);
            sum = t->ys[0] + i;
        } else {
            sum_piece(many, t->xs, t->n, i, count);
        }
        for (int out = t->n <= 4 ? 1 : 0; out < t->outs; out++) {
            memmove(t->ys[out] + i, sum, count * sizeof(*sum));
        }
    }
}

dp_status dp_cpu_sum_tree(struct dp_stream *s, float *const *ys, int outs, const float *const *xs,
                          int n, size_t count)
{
    struct sum t = {ys, xs, outs, n};

    assert(n >= 1 && outs >= 1);
    dp_parallel(s->threads, count, DP_BLOCK, sum_part, &t);
    return DP_OK;
}
