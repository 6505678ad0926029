/*
 * test_norm_whole.c - the operations that do all of a batch normalisation's small work at once, on
 * devices that have them: the bits of the operations one by one, which test_norm holds against the
 * reference. Where another kernel sums, the order of its sums may differ.
 */
#include "tests/support/arrays.h"

#if DP_CUDA_ON_HOST
#include "tests/cuda_on_host/meter.h"
#endif

enum { ROWS = 3 };

static const struct size {
    size_t count, channels;
} sizes[] = {{0, 3}, {1, 1}, {2, 8}, {17, 16}, {65, 64}, {33, 65}, {300, 24}, {5, 2048}, {1000, 4}};

/* Arrays of the compute type, and some of float32. */
struct data {
    struct dp_stream *s;
    struct dp_norm norm;
    struct dp_step_params *step_params;
    size_t total;
    void *x, *dy, *dy2, *y, *gamma, *beta;
    float *wide_gamma, *wide_beta, *mean, *var;
};

static void *numbers(struct dp_stream *s, size_t count, uint32_t seed, float low, float high)
{
    float *wide = uniform(count + 1, seed, low, high);
    uint16_t *narrow;

    if (s->type == DP_TYPE_F32) {
        return wide;
    }
    narrow = dp_zalloc(count + 1, sizeof(*narrow));
    assert_non_null(narrow);
    OK(s->ops->narrow(s, narrow, wide, count, s->type));
    OK(s->device->synchronize(s));
    dp_free(wide);
    return narrow;
}

/* The same as float32. */
static float *widened(struct dp_stream *s, const void *array, size_t count)
{
    float *wide = zeros(count);

    if (s->type == DP_TYPE_F32) {
        memcpy(wide, array, count * sizeof(float));
        return wide;
    }
    OK(s->ops->widen(s, wide, array, count, s->type));
    OK(s->device->synchronize(s));
    return wide;
}

static struct data data_create(struct dp_stream *s, struct size size, enum dp_activation act)
{
    const size_t total = size.count * size.channels, c = size.channels;
    struct data d = {
        .s = s,
        .norm = {.count = size.count, .channels = c, .eps = 1e-5f, .act = act},
        .step_params = dp_zalloc(1, sizeof(*d.step_params)),
        .total = total,
        .x = numbers(s, total, 1, -1.5f, 2),
        .dy = numbers(s, total, 2, -1, 1),
        .dy2 = numbers(s, total, 3, -1, 1),
        .y = numbers(s, total, 4, -1, 1),
        .gamma = numbers(s, c, 5, 0.5f, 1.5f),
        .beta = numbers(s, c, 6, -0.5f, 0.5f),
        .mean = uniform(c, 7, -0.2f, 0.2f),
        .var = uniform(c, 8, 0.5f, 1.5f),
    };

    assert_non_null(d.step_params);
    d.step_params->per_sample = 1.0f / 7;
    d.wide_gamma = widened(s, d.gamma, c);
    d.wide_beta = widened(s, d.beta, c);
    return d;
}

static void data_destroy(struct data *d)
{
    void *const all[] = {d->x,          d->dy,        d->dy2,  d->y,   d->gamma,      d->beta,
                         d->wide_gamma, d->wide_beta, d->mean, d->var, d->step_params};

    for (size_t i = 0; i < DP_COUNT(all); i++) {
        dp_free(all[i]);
    }
}

static void *room(const struct data *d)
{
    void *array = dp_zalloc(d->total + 1, dp_type_bytes(d->s->type));

    assert_non_null(array);
    return array;
}

static void assert_same(const struct data *d, const void *found, const void *expected)
{
    assert_memory_equal(found, expected, d->total * dp_type_bytes(d->s->type));
}

/* Whether there are signs of such numbers. */
static bool has_signs(const struct data *d)
{
    return d->s->type != DP_TYPE_F32 && d->norm.channels % 8 == 0;
}

/* Bit k of byte i is that of element 8 i + k. */
static uint8_t *signs_of(const struct data *d, const void *y)
{
    float *wide = widened(d->s, y, d->total);
    uint8_t *signs = dp_zalloc(d->total / 8 + 1, 1);

    assert_non_null(signs);
    for (size_t i = 0; i < d->total; i++) {
        signs[i / 8] |= (uint8_t)((wide[i] > 0 ? 1u : 0u) << i % 8);
    }
    dp_free(wide);
    return signs;
}

/* ---- statistics ---- */

/* Forward of a layer: what it makes of its channels, and y. */
struct forward {
    float *mean, *var, *shares, *gamma, *beta;
    void *y;
};

static struct forward forward_create(const struct data *d, float keep)
{
    const size_t c = d->norm.channels;

    return (struct forward){zeros(c), zeros(c), held(2 * c, 9, keep), zeros(c), zeros(c), room(d)};
}

static void forward_destroy(struct forward *f)
{
    dp_free(f->mean);
    dp_free(f->var);
    dp_free(f->shares);
    dp_free(f->gamma);
    dp_free(f->beta);
    dp_free(f->y);
}

static void forward_one_by_one(const struct data *d, const struct forward *f, float keep)
{
    const struct dp_ops *ops = d->s->ops;
    const size_t c = d->norm.channels;
    const double n = (double)d->norm.count, each = n > 0 ? 1.0 / n : 0.0;
    double *moments = dp_zalloc(2 * c, sizeof(*moments));

    assert_non_null(moments);
    OK(ops->norm_moments(d->s, moments, 0, d->x, &d->norm));
    OK(ops->norm_mean(d->s, f->mean, moments, n * each, c));
    OK(ops->norm_variance(d->s, f->var, moments, f->mean, n, each, c));
    OK(ops->norm_share(d->s, f->shares, f->mean, ROWS, 1, d->step_params, c, keep));
    OK(ops->norm_share(d->s, f->shares + c, f->var, ROWS, 1.25f, d->step_params, c, keep));
    OK(ops->norm_apply(d->s, f->y, d->x, d->dy, f->mean, f->var, d->wide_gamma, d->wide_beta,
                       &d->norm));
    OK(d->s->device->synchronize(d->s));
    memcpy(f->gamma, d->wide_gamma, c * sizeof(float));
    memcpy(f->beta, d->wide_beta, c * sizeof(float));
    dp_free(moments);
}

static void forward_at_once(const struct data *d, const struct forward *f, float keep)
{
    const bool narrow = d->s->type != DP_TYPE_F32;
    float *scale = zeros(d->norm.channels);
    struct dp_norm norm = d->norm;
    const struct dp_norm_statistics to = {
        .mean = f->mean,
        .var = f->var,
        .scale = scale,
        .weights = {d->gamma, d->beta},
        .wide = {narrow ? f->gamma : NULL, narrow ? f->beta : NULL},
        .shares = f->shares,
        .rows = ROWS,
        .unbiased = 1.25f,
        .keep = keep,
        .step_params = d->step_params,
    };

    norm.scale = scale;
    OK(d->s->ops->norm_statistics(d->s, &to, d->x, &norm));
    /* gamma is no longer read */
    OK(d->s->ops->norm_apply(d->s, f->y, d->x, d->dy, f->mean, f->var, f->mean, d->wide_beta,
                             &norm));
    OK(d->s->device->synchronize(d->s));
    dp_free(scale);
}

/* Also where arrays do not begin at a multiple of 16 bytes. */
static void check_signs(const struct data *d, const struct forward *f)
{
    const size_t bytes = dp_type_bytes(d->s->type);
    uint8_t *found = dp_zalloc(d->total / 8 + 1, 1), *expected = signs_of(d, f->y);
    char *y = dp_zalloc(d->total + 1, bytes);
    struct dp_norm norm = d->norm;

    assert_true(found != NULL && y != NULL);
    norm.signs = found;
    for (size_t shift = 0; shift < 2; shift++) {
        memset(found, 0xff, d->total / 8);
        OK(d->s->ops->norm_apply(d->s, y + shift * bytes, d->x, d->dy, f->mean, f->var,
                                 d->wide_gamma, d->wide_beta, &norm));
        OK(d->s->device->synchronize(d->s));
        assert_same(d, y + shift * bytes, f->y);
        assert_memory_equal(found, expected, d->total / 8);
    }
    dp_free(y);
    dp_free(expected);
    dp_free(found);
}

static void check_forward(struct dp_stream *s, struct size size, float keep)
{
    struct data d = data_create(s, size, DP_ACT_RELU);
    struct forward expected = forward_create(&d, keep), found = forward_create(&d, keep);
    const size_t c = size.channels;

    forward_one_by_one(&d, &expected, keep);
    forward_at_once(&d, &found, keep);
    assert_same_bits(found.mean, expected.mean, c);
    assert_same_bits(found.var, expected.var, c);
    assert_same_bits(found.shares, expected.shares, 2 * c);
    if (s->type != DP_TYPE_F32) {
        assert_same_bits(found.gamma, expected.gamma, c);
        assert_same_bits(found.beta, expected.beta, c);
    }
    assert_same(&d, found.y, expected.y);
    if (has_signs(&d)) {
        check_signs(&d, &expected);
    }
    forward_destroy(&found);
    forward_destroy(&expected);
    data_destroy(&d);
}

/* ---- gradients ---- */

struct backward {
    float *dgamma, *dbeta;
    void *g, *dx;
};

static struct backward backward_create(const struct data *d, float keep)
{
    const size_t c = d->norm.channels;

    return (struct backward){held(c, 9, keep), held(c, 10, keep), room(d), room(d)};
}

static void backward_destroy(struct backward *b)
{
    dp_free(b->dgamma);
    dp_free(b->dbeta);
    dp_free(b->g);
    dp_free(b->dx);
}

/* The kind of a join; none: no join. */
struct join {
    bool adds, masks, none;
};

static void backward_one_by_one(const struct data *d, const struct backward *b, struct join join,
                                float keep)
{
    const struct dp_ops *ops = d->s->ops;
    const size_t c = d->norm.channels;
    double *sums = dp_zalloc(2 * c, sizeof(*sums));
    float *shared = zeros(2 * c);
    const void *g = join.none ? d->dy : b->g;

    assert_non_null(sums);
    OK(ops->copy(d->s, b->g, d->dy, d->total * dp_type_bytes(d->s->type)));
    if (join.adds) {
        OK(ops->add_forward(d->s, b->g, d->dy, d->dy2, d->total, DP_ACT_NONE));
    }
    if (join.masks) {
        OK(ops->relu_backward(d->s, b->g, b->g, d->y, d->total));
    }
    OK(ops->norm_backward_sums(d->s, sums, g, d->x, d->mean, d->var, d->wide_gamma, d->wide_beta,
                               &d->norm, 0));
    OK(ops->norm_grads(d->s, b->dgamma, b->dbeta, shared, sums, c, keep));
    OK(ops->norm_backward_apply(d->s, b->dx, g, d->x, d->mean, d->var, d->wide_gamma, d->wide_beta,
                                sums, (double)d->norm.count, &d->norm));
    OK(d->s->device->synchronize(d->s));
    dp_free(shared);
    dp_free(sums);
}

/* Over dy, dy2 or neither. Where there are signs, y is not read: it is not a number. */
static void backward_at_once(struct data *d, struct backward *b, struct join join, float keep,
                             int over)
{
    void *const places[] = {b->g, d->dy, d->dy2};
    uint8_t *signs = has_signs(d) && join.masks ? signs_of(d, d->y) : NULL;
    float *slopes = zeros(2 * d->norm.channels);
    struct dp_norm norm = d->norm;
    const struct dp_norm_backward all = {
        .dy = d->dy,
        .x = d->x,
        .dy2 = join.adds ? d->dy2 : NULL,
        .y = join.masks ? d->y : NULL,
        .g = join.none ? NULL : places[over],
        .mean = d->mean,
        .var = d->var,
        .gamma = d->wide_gamma,
        .beta = d->wide_beta,
        .dgamma = b->dgamma,
        .dbeta = b->dbeta,
        .slopes = slopes,
        .total = (double)d->norm.count,
        .keep = keep,
    };

    norm.slopes = slopes;
    norm.signs = signs;
    if (signs != NULL) {
        memset(d->y, 0xff, d->total * dp_type_bytes(d->s->type));
    }
    OK(d->s->ops->norm_backward(d->s, &all, &norm));
    OK(d->s->ops->norm_backward_apply(d->s, b->dx, join.none ? d->dy : all.g, d->x, d->mean, d->var,
                                      d->wide_gamma, d->wide_beta, NULL, all.total, &norm));
    OK(d->s->device->synchronize(d->s));
    if (!join.none && over > 0) {
        memcpy(b->g, all.g, d->total * dp_type_bytes(d->s->type));
    }
    dp_free(slopes);
    dp_free(signs);
}

static void check_backward(struct dp_stream *s, struct size size, struct join join, float keep,
                           int over)
{
    struct data d = data_create(s, size, join.none ? DP_ACT_RELU : DP_ACT_NONE);
    struct backward expected = backward_create(&d, keep), found = backward_create(&d, keep);
    const size_t c = size.channels;

    backward_one_by_one(&d, &expected, join, keep);
    backward_at_once(&d, &found, join, keep, over);
    if (!join.none) {
        assert_same(&d, found.g, expected.g);
    }
    if (join.none || DP_CUDA_ON_HOST) { /* as many chunks of rows */
        assert_same_bits(found.dgamma, expected.dgamma, c);
        assert_same_bits(found.dbeta, expected.dbeta, c);
        assert_same(&d, found.dx, expected.dx);
    } else {
        assert_near(found.dgamma, expected.dgamma, c, 1e-5 * (double)size.count, 1e-6);
        assert_near(found.dbeta, expected.dbeta, c, 1e-5 * (double)size.count, 1e-6);
    }
    backward_destroy(&found);
    backward_destroy(&expected);
    data_destroy(&d);
}

/* ---- on every type ---- */

static void each_size(void (*check)(struct dp_stream *s, struct size size, size_t i))
{
    static const enum dp_type types[] = {DP_TYPE_F32, DP_TYPE_BF16, DP_TYPE_F16};
    struct dp_stream *s = stream_on(tested_device(), 1);
    const bool there = s->ops->norm_statistics != NULL;

    for (size_t i = 0; there && i < 3 * DP_COUNT(sizes); i++) {
        dp_stream_set_type(s, types[i % 3]);
        check(s, sizes[i / 3], i);
    }
    stream_close(s);
    if (!there) {
        skip();
    }
}

static void check_statistics(struct dp_stream *s, struct size size, size_t i)
{
    check_forward(s, size, (float)(i % 2));
}

static void statistics_at_once_are_those_one_by_one(void **state)
{
    (void)state;
    each_size(check_statistics);
}

static void check_gradients(struct dp_stream *s, struct size size, size_t i)
{
    check_backward(s, size, (struct join){.none = true}, (float)(i % 2), 0);
}

static void gradients_at_once_are_those_one_by_one(void **state)
{
    (void)state;
    each_size(check_gradients);
}

static void check_joins(struct dp_stream *s, struct size size, size_t i)
{
    for (int kind = 0; kind < 4; kind++) {
        const struct join join = {.adds = kind % 2 != 0, .masks = kind / 2 != 0};
        check_backward(s, size, join, (float)(i % 2),
                       (int)(i + (size_t)kind) % (join.adds ? 3 : 2));
    }
}

static void joins_at_once_are_those_one_by_one(void **state)
{
    (void)state;
    each_size(check_joins);
}

#if DP_CUDA_ON_HOST
/* What a pass over rows asks of memory. */
static struct cuda_on_host_meter accesses_of(struct data *d, void *out, bool backward)
{
    const size_t c = d->norm.channels;
    struct cuda_on_host_meter before, after;
    float *slopes = zeros(2 * c);
    struct dp_norm norm = d->norm;

    norm.scale = d->wide_gamma;
    norm.slopes = slopes;
    cuda_on_host_meter_read(&before);
    if (backward) {
        OK(d->s->ops->norm_backward_apply(d->s, out, d->dy, d->x, d->mean, d->var, d->wide_gamma,
                                          d->wide_beta, NULL, 1, &norm));
    } else {
        OK(d->s->ops->norm_apply(d->s, out, d->x, NULL, d->mean, d->var, d->wide_gamma,
                                 d->wide_beta, &norm));
    }
    OK(d->s->device->synchronize(d->s));
    cuda_on_host_meter_read(&after);
    after.accesses -= before.accesses;
    after.turns -= before.turns;
    dp_free(slopes);
    return after;
}

/* 16 bytes an access; factors of channels once, not for each row, for which half is room; and
 * two rows or more are read before any is written. */
static void passes_over_rows_ask_for_little_of_memory(void **state)
{
    static const enum dp_type types[] = {DP_TYPE_F32, DP_TYPE_BF16};
    const struct size size = {16384, 32};
    struct dp_stream *s = stream_on(tested_device(), 1);
    (void)state;

    for (size_t i = 0; i < 4 && s->ops->norm_statistics != NULL; i++) {
        const bool backward = i / 2 != 0;
        dp_stream_set_type(s, types[i % 2]);
        struct data d = data_create(s, size, DP_ACT_RELU);
        const uint64_t packs = d.total * dp_type_bytes(s->type) / 16, arrays = backward ? 3 : 2;
        void *out = room(&d);
        const struct cuda_on_host_meter all = accesses_of(&d, out, backward);
        assert_in_range(all.accesses, arrays * packs, arrays * packs + packs / 2);
        assert_in_range(all.turns, packs / 8, packs / 2 + packs / 8);
        dp_free(out);
        data_destroy(&d);
    }
    stream_close(s);
}
#endif

static int nothing_is_left(void **state)
{
    (void)state;
    return (int)blocks_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_at_once_are_those_one_by_one),
        cmocka_unit_test(gradients_at_once_are_those_one_by_one),
        cmocka_unit_test(joins_at_once_are_those_one_by_one),
#if DP_CUDA_ON_HOST
        cmocka_unit_test(passes_over_rows_ask_for_little_of_memory),
#endif
    };

    return run_reached_tests(tests, NULL, nothing_is_left);
}
