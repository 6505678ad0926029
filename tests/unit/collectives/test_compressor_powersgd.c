/*
 * test_compressor_powersgd.c - powersgd and its operations against a second implementation of the
 * method.
 */
#include "tests/support/arrays.h"

#include "tests/support/local_world.h"
#include "tests/support/strategies/compressor_lab.h"

enum { RANKS = 3, STEPS = 4, RANK = 2 };

/* ---- operations ---- */

/* The largest |column a times column b - (a == b)|. */
static double skew(const float *y, size_t rows, size_t cols)
{
    double most = 0;

    for (size_t a = 0; a < cols; a++) {
        for (size_t b = 0; b <= a; b++) {
            double sum = a == b ? -1 : 0;
            for (size_t i = 0; i < rows; i++) {
                sum += (double)y[i * cols + a] * (double)y[i * cols + b];
            }
            most = fabs(sum) > most ? fabs(sum) : most;
        }
    }
    return most;
}

/* The part of column k of x outside the space of y's columns up to k, relative to its length. */
static double outside(const float *x, const float *y, size_t rows, size_t cols, size_t k)
{
    double rest[64], length = 0, left = 0;

    for (size_t i = 0; i < rows; i++) {
        rest[i] = (double)x[i * cols + k];
        length += rest[i] * rest[i];
    }
    for (size_t b = 0; b <= k; b++) {
        double along = 0;
        for (size_t i = 0; i < rows; i++) {
            along += (double)x[i * cols + k] * (double)y[i * cols + b];
        }
        for (size_t i = 0; i < rows; i++) {
            rest[i] -= along * (double)y[i * cols + b];
        }
    }
    for (size_t i = 0; i < rows; i++) {
        left += rest[i] * rest[i];
    }
    return sqrt(left / length);
}

static void columns_become_orthonormal_in_the_same_space(void **state)
{
    static const size_t shapes[][2] = {{1, 1},   {2, 2},   {5, 3},   {64, 1}, {64, 7},
                                       {40, 40}, {64, 12}, {50, 16}, {8, 8},  {20, 17}};
    const struct streams *streams = *state;

    for (size_t n = 0; n < DP_COUNT(shapes); n++) {
        const size_t rows = shapes[n][0], cols = shapes[n][1];
        float *x = uniform(rows * cols, 1, -1, 1), *y = copy_of(x, rows * cols);
        OK(streams->tested[1]->ops->orthogonalize(streams->tested[1], y, rows, cols));
        /* Numbers below 1 are rounded to 6e-8, sums of them in double. */
        assert_true(skew(y, rows, cols) < 1e-6);
        for (size_t k = 0; k < cols; k++) {
            assert_true(outside(x, y, rows, cols, k) < 1e-5);
        }
        dp_free(x);
        dp_free(y);
    }
}

/* All ranks must get the same bits, with any vector width. */
static void cpu_adds_in_the_order_of_the_reference(void **state)
{
    static const size_t shapes[][2] = {{9, 1}, {64, 7}, {64, 12}, {200, 16}, {8, 8}, {20, 17}};
    const struct streams *streams = *state;
    struct dp_stream *cpu = stream_on("cpu", 1);

    for (size_t n = 0; n < DP_COUNT(shapes); n++) {
        const size_t rows = shapes[n][0], cols = shapes[n][1];
        float *x = uniform(rows * cols, 1, -1, 1), *y = copy_of(x, rows * cols);
        OK(streams->ref->ops->orthogonalize(streams->ref, x, rows, cols));
        OK(cpu->ops->orthogonalize(cpu, y, rows, cols));
        assert_same_bits(y, x, rows * cols);
        dp_free(x);
        dp_free(y);
    }
    stream_close(cpu);
}

/* Columns: 0, ones, ones again, NaN, an infinity, nearly ones, huge, tiny. */
static void dependent_columns_become_random(void **state)
{
    enum { ROWS = 20, COLS = 8 };
    const struct streams *streams = *state;
    float y[ROWS * COLS], again[ROWS * COLS];

    for (size_t i = 0; i < ROWS; i++) {
        const float wave = (float)(i % 3);
        const float row[COLS] = {0,
                                 1,
                                 1,
                                 NAN,
                                 i == 5 ? INFINITY : 0,
                                 1 + 1e-7f * wave,
                                 3e38f * (wave - 1),
                                 1e-40f * (float)(i % 5)};
        memcpy(&y[i * COLS], row, sizeof(row));
    }
    memcpy(again, y, sizeof(y));
    OK(streams->ref->ops->orthogonalize(streams->ref, y, ROWS, COLS));
    assert_true(skew(y, ROWS, COLS) < 1e-6);
    OK(streams->tested[0]->ops->orthogonalize(streams->tested[0], again, ROWS, COLS));
    assert_same_bits(again, y, (size_t)ROWS * COLS);
}

static void a_split_equals_the_reference(void **state)
{
    static const size_t shapes[][3] = {{1, 1, 1},     {3, 17, 2},    {200, 300, 4}, {16, 5, 3},
                                       {33, 128, 32}, {40, 130, 33}, {7, 100, 70}};
    const struct streams *streams = *state;

    for (size_t n = 0; n < DP_COUNT(shapes); n++) {
        const size_t rows = shapes[n][0], cols = shapes[n][1], rank = shapes[n][2];
        float *p = uniform(rows * rank, 1, -1, 1), *q = uniform(rank * cols, 2, -1, 1);
        float *mine = uniform(rank * cols, 3, -1, 1), *old = uniform(rows * cols, 4, -1, 1);
        float *sum = held(rows * cols, 5, 0), *kept = copy_of(old, rows * cols);
        OK(streams->ref->ops->lowrank_split(streams->ref, sum, kept, p, q, mine, rows, cols, rank));
        for (size_t t = 0; t < DP_COUNT(streams->tested); t++) {
            struct dp_stream *s = streams->tested[t];
            float *y = held(rows * cols, 6, 0), *left = copy_of(old, rows * cols);
            OK(s->ops->lowrank_split(s, y, left, p, q, mine, rows, cols, rank));
            assert_same_bits(y, sum, rows * cols);
            assert_same_bits(left, kept, rows * cols);
            dp_free(y);
            dp_free(left);
        }
        dp_free(p);
        dp_free(q);
        dp_free(mine);
        dp_free(old);
        dp_free(sum);
        dp_free(kept);
    }
}

/* ---- the method ---- */

/* The ranks' state for one tensor, in double, which every rank computes. */
struct model {
    double kept[RANKS][LAB_TRAINED], warm[RANK * LAB_TRAINED], sum[LAB_TRAINED];
};

struct matrix {
    size_t begin, rows, cols;
};

/* p = columns of the sum over ranks of kept times warm', orthonormal. */
static size_t model_p(const struct model *m, struct dp_stream *s, const struct matrix *a, float *p)
{
    for (size_t i = 0; i < a->rows; i++) {
        for (size_t k = 0; k < RANK; k++) {
            double sum = 0;
            for (size_t j = 0; j < a->cols * RANKS; j++) {
                const size_t col = j % a->cols;
                sum += m->kept[j / a->cols][a->begin + i * a->cols + col] *
                       m->warm[RANK * a->begin + k * a->cols + col];
            }
            p[i * RANK + k] = (float)sum;
        }
    }
    return s->ops->orthogonalize(s, p, a->rows, RANK) != DP_OK;
}

static size_t model_step(struct model *m, struct dp_stream *s, const struct matrix *a,
                         uint32_t step)
{
    float p[50 * RANK];
    size_t wrong;

    for (size_t i = a->begin; i < a->begin + a->rows * a->cols; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
            m->kept[rank][i] += (double)lab_value(rank, step, i);
        }
        m->sum[i] = 0;
    }
    wrong = model_p(m, s, a, p);
    for (size_t at = 0; at < RANK * a->cols; at++) {
        const size_t k = at / a->cols, j = at % a->cols;
        m->warm[RANK * a->begin + at] = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            double q = 0;
            for (size_t i = 0; i < a->rows; i++) {
                q += (double)p[i * RANK + k] * m->kept[rank][a->begin + i * a->cols + j];
            }
            m->warm[RANK * a->begin + at] += q;
            /* Columns of p are orthonormal: q of the next k does not change by taking this off. */
            for (size_t i = 0; i < a->rows; i++) {
                const double sent = (double)p[i * RANK + k] * q;
                m->kept[rank][a->begin + i * a->cols + j] -= sent;
                m->sum[a->begin + i * a->cols + j] += sent;
            }
        }
    }
    return wrong;
}

static size_t sends_thin_matrices(struct dp_group *group, const void *setup)
{
    static const struct matrix matrices[] = {{0, 50, 60}, {3072, 10, 64}, {3776, 10, 10}};
    struct model *m = dp_zalloc(1, sizeof(*m));
    struct lab lab;
    size_t wrong = 0;

    if (m == NULL || lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        for (size_t n = 0; n < DP_COUNT(matrices); n++) {
            wrong += model_step(m, group->stream, &matrices[n], step);
        }
        for (size_t i = 0; i < LAB_TRAINED; i++) {
            const bool as_it_is = (i >= 3008 && i < 3018) || (i >= 3712 && i < 3776);
            const float plain =
                (lab_value(0, step, i) + lab_value(1, step, i)) + lab_value(2, step, i);
            /* Sums of 60 products below 10, in float32 and in double, over some steps. */
            wrong +=
                as_it_is ? lab.grad[i] != plain : !(fabs((double)lab.grad[i] - m->sum[i]) <= 1e-4);
            wrong +=
                !(fabs((double)lab.compression->residual[0][i] - m->kept[group->rank][i]) <= 1e-4);
        }
    }
    lab_close(&lab);
    dp_free(m);
    return wrong;
}

static void powersgd_sums_projections_and_keeps_the_rest(void **state)
{
    static const struct lab_setup setup = {"powersgd:rank=2", "shm", DP_KEEP_ALL, false};
    (void)state;

    assert_int_equal(on_local_ranks(RANKS, sends_thin_matrices, &setup), 0);
}

/* The same gradient u v' on all ranks, in every step: the first P is random, the second is u. */
static size_t learns_the_direction(struct dp_group *group, const void *setup)
{
    struct lab lab;
    double kept = 0;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < 6; step++) {
        for (size_t i = 0; i < 3000; i++) {
            const size_t row = i / 60, col = i % 60;
            lab.grad[i] = sinf((float)row) * cosf((float)col);
        }
        wrong += lab_step(&lab) != DP_OK;
    }
    for (size_t i = 0; i < 3000; i++) {
        kept += fabs((double)lab.compression->residual[0][i]) / 3000;
    }
    wrong += kept > 1e-5; /* of numbers of about 0.4 */
    lab_close(&lab);
    return wrong;
}

static void a_matrix_of_low_rank_is_sent_completely_in_the_end(void **state)
{
    static const struct lab_setup setup = {"powersgd:rank=2", "ring", DP_KEEP_CHUNK, true};
    (void)state;

    assert_int_equal(on_local_ranks(2, learns_the_direction, &setup), 0);
}

/* ---- preparing ---- */

/* Of a rank, which is a thread. */
static _Thread_local size_t asked[LAB_TENSORS][3]; /* shapes of products */
static _Thread_local size_t asks;

static dp_status note_product(struct dp_stream *s, size_t rows, size_t in, size_t out,
                              unsigned uses)
{
    (void)s;
    if (asks == LAB_TENSORS || uses != (DP_DENSE_FORWARD | DP_DENSE_BACKWARD_WEIGHTS)) {
        return DP_ERR_INTERNAL;
    }
    memcpy(asked[asks++], (size_t[]){rows, in, out}, sizeof(asked[0]));
    return DP_OK;
}

static size_t notes_products(struct dp_group *group, const void *setup)
{
    /* In the order of buckets: from the end of the gradient. */
    static const size_t shapes[][3] = {{10, 10, 2}, {10, 64, 2}, {50, 60, 2}};
    struct dp_compression_config config;
    struct dp_stream noting;
    struct dp_ops ops;
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    dp_compression_destroy(lab.compression);
    lab.compression = NULL;
    config = (struct dp_compression_config){lab.setup->compressor, &lab.step_params, 5};
    noting = *lab.codes;
    ops = *noting.ops;
    ops.dense_prepare = note_product;
    noting.ops = &ops;
    lab.comm->codes = &noting;
    asks = 0;
    wrong += dp_compression_create(lab.comm, lab.plan, lab.grad, LAB_TRAINED, &config,
                                   &lab.compression) != DP_OK;
    wrong += asks != DP_COUNT(shapes) || memcmp(asked, shapes, sizeof(shapes)) != 0;
    lab_close(&lab);
    return wrong;
}

static void products_are_prepared_before_the_first_step(void **state)
{
    static const struct lab_setup setup = {"powersgd:rank=2", "ring", DP_KEEP_ALL, false};
    (void)state;

    assert_int_equal(on_local_ranks(2, notes_products, &setup), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_become_orthonormal_in_the_same_space),
        cmocka_unit_test(cpu_adds_in_the_order_of_the_reference),
        cmocka_unit_test(dependent_columns_become_random),
        cmocka_unit_test(a_split_equals_the_reference),
        cmocka_unit_test(powersgd_sums_projections_and_keeps_the_rest),
        cmocka_unit_test(a_matrix_of_low_rank_is_sent_completely_in_the_end),
        cmocka_unit_test(products_are_prepared_before_the_first_step),
    };

    return cmocka_run_group_tests_name("compressor_powersgd", tests, streams_open, streams_close);
}
