/*
 * test_mixup.c - samples that are mixed with others: what they are mixed with, and that any ranks
 * and threads get the same.
 */
#include "tests/support/arrays.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/loader.h"

enum { SIDE = 4, COUNT = SIDE * SIDE, ROWS = 50, BATCH = 20, STEPS = 6, TRIES = 200 * ROWS };

static const struct dp_sample_shape bytes_shape = {SIDE, SIDE, 1, COUNT, DP_ELEMENT_BYTE};
static const struct dp_sample_shape float_shape = {SIDE, SIDE, 1, COUNT, DP_ELEMENT_FLOAT};
static const struct dp_sample_shape flat_shape = {0, 0, 0, COUNT, DP_ELEMENT_BYTE};

static struct dp_augment *augment_of(const char *text, const struct dp_sample_shape *shape)
{
    struct dp_augment *augment = NULL;
    char problem[256] = "";

    if (dp_augment_create(text, shape, 7, &augment, problem, sizeof(problem)) != DP_OK) {
        fail_msg("%s: %s", text, problem);
    }
    return augment;
}

/* Beta(alpha, alpha) has mean 1/2 and variance 1 / (4 (2 alpha + 1)). Of 20,000 numbers both are
 * right within 4 of their standard deviations, which are below 0.5 / 141 and 0.125 / 141. */
static void shares_are_those_of_the_beta_distribution(void **state)
{
    static const double alphas[] = {0.01, 0.2, 1, 8, 100};
    enum { NUMBERS = 20000 };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(alphas); i++) {
        char text[64];
        double sum = 0, squares = 0;
        struct dp_augment *a;
        (void)snprintf(text, sizeof(text), "mixup:alpha=%g", alphas[i]);
        a = augment_of(text, &flat_shape);
        for (uint64_t row = 0; row < NUMBERS; row++) {
            const struct dp_mix mix = dp_augment_mix(a, row % 3, row, ROWS);
            const double share = (double)mix.part / DP_MIX_WHOLE;
            assert_true(mix.part <= DP_MIX_WHOLE && mix.row < ROWS);
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
        }
        assert_true(fabs(sum / NUMBERS - 0.5) < 0.015);
        assert_true(fabs(squares / NUMBERS - 0.25 / (2 * alphas[i] + 1)) < 0.0036);
        dp_augment_destroy(a);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* What ran before goes on with the same samples: these are the shares, in thousandths. */
static void shares_are_the_same_for_ever(void **state)
{
    static const char *const texts[] = {"mixup:alpha=0.2", "mixup:alpha=1", "mixup:alpha=8"};
    static const int shares[3][4] = {{30, 999, 0, 843}, {488, 46, 992, 365}, {496, 294, 703, 451}};
    static const size_t rows[4] = {4, 16, 8, 37};
    (void)state;

    for (int i = 0; i < 3; i++) {
        struct dp_augment *a = augment_of(texts[i], &flat_shape);
        for (uint64_t row = 0; row < 4; row++) {
            const struct dp_mix mix = dp_augment_mix(a, 1, row, ROWS);
            assert_int_equal((int)(1000.0 * mix.part / DP_MIX_WHOLE), shares[i][row]);
            assert_int_equal(mix.row, rows[row]);
        }
        dp_augment_destroy(a);
    }
}

static void every_row_is_mixed_with_as_often(void **state)
{
    struct dp_augment *a = augment_of("mixup", &bytes_shape);
    int times[ROWS] = {0};
    (void)state;

    for (uint64_t row = 0; row < TRIES; row++) {
        times[dp_augment_mix(a, 0, row, ROWS).row]++;
    }
    for (int i = 0; i < ROWS; i++) {
        assert_in_range(times[i], 200 - 5 * 14, 200 + 5 * 14); /* 5 standard deviations */
    }
    dp_augment_destroy(a);
}

static void bytes_are_rounded_and_floats_are_not(void **state)
{
    const struct dp_mix mix = {.part = DP_MIX_WHOLE / 4};
    struct dp_augment *a = augment_of("flip;mixup", &bytes_shape);
    struct dp_augment *b = augment_of("mixup", &float_shape);
    uint8_t one[COUNT], other[COUNT];
    float x[COUNT], y[COUNT];
    (void)state;

    for (int i = 0; i < COUNT; i++) {
        one[i] = (uint8_t)(255 - i);
        other[i] = (uint8_t)(2 * i);
        x[i] = (float)one[i];
        y[i] = (float)other[i];
    }
    dp_augment_mix_samples(a, &mix, one, other);
    dp_augment_mix_samples(b, &mix, (uint8_t *)x, (const uint8_t *)y);
    for (int i = 0; i < COUNT; i++) {
        const double exact = 0.25 * (255 - i) + 0.75 * 2 * i;
        assert_true((double)x[i] == exact);
        assert_true(fabs((double)one[i] - exact) <= 0.5);
    }
    dp_augment_destroy(a);
    dp_augment_destroy(b);
}

static void it_comes_last_and_once(void **state)
{
    static const char *const texts[] = {"mixup;flip", "mixup;mixup:alpha=1", "mixup:alpha=0"};
    struct dp_augment *augment = NULL;
    char problem[256];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(texts); i++) {
        assert_int_equal(
            dp_augment_create(texts[i], &bytes_shape, 7, &augment, problem, sizeof(problem)),
            DP_ERR_CONFIG);
        assert_non_null(strstr(problem, i < 2 ? "mixup must be the last one" : "alpha"));
    }
    assert_true(dp_augment_text_mixes("flip:p=1;mixup:alpha=0.3"));
    assert_true(dp_augment_text_mixes("mixup"));
    assert_false(dp_augment_text_mixes("flip;cutout:size=4"));
    assert_false(dp_augment_text_mixes(""));
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- batches ---- */

static uint8_t images[ROWS * COUNT];
static int32_t classes[ROWS], numbers[ROWS * 2];

static int make_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(images); i++) {
        images[i] = (uint8_t)dp_random_u32(1, DP_RANDOM_TEST, 0, i);
    }
    for (size_t i = 0; i < ROWS; i++) {
        const float two[2] = {(float)i, -2.0f * (float)i};
        classes[i] = (int32_t)(i % 7);
        memcpy(&numbers[2 * i], two, sizeof(two));
    }
    return 0;
}

struct run {
    uint8_t images[STEPS][BATCH * COUNT];
    int32_t labels[STEPS][BATCH * DP_PAIR_WORDS];
};

/* All batches, gathered from the ranks; pairs of classes, or two numbers a label. */
static void load(struct run *run, bool pairs, int ranks, int workers, struct dp_augment *augment)
{
    const size_t words = pairs ? DP_PAIR_WORDS : 2;

    for (int rank = 0; rank < ranks; rank++) {
        const struct dp_loader_config config = {.images = images,
                                                .labels = pairs ? classes : numbers,
                                                .count = ROWS,
                                                .sample_bytes = COUNT,
                                                .label_words = pairs ? 1 : 2,
                                                .batch_words = words,
                                                .global_batch = BATCH,
                                                .rank = rank,
                                                .ranks = ranks,
                                                .seed = 7,
                                                .shuffle = true,
                                                .total_steps = STEPS,
                                                .augment = augment,
                                                .workers = workers};
        struct dp_loader *loader;
        assert_int_equal(dp_loader_create(&config, &loader), DP_OK);
        for (int step = 0; step < STEPS; step++) {
            struct dp_batch batch;
            assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
            memcpy(run->images[step] + batch.first_row * COUNT, batch.images, batch.rows * COUNT);
            memcpy(run->labels[step] + batch.first_row * words, batch.labels,
                   batch.rows * words * sizeof(int32_t));
        }
        dp_loader_destroy(loader);
    }
}

static void any_ranks_and_threads_get_the_same_pairs(void **state)
{
    static struct run alone, other;
    struct dp_augment *augment = augment_of("flip;mixup:alpha=0.5", &bytes_shape);
    int mixed = 0;
    (void)state;

    for (int kind = 0; kind < 2; kind++) {
        load(&alone, kind == 0, 1, 1, augment);
        load(&other, kind == 0, 3, 2, augment);
        assert_memory_equal(&alone, &other, sizeof(alone));
    }
    load(&alone, true, 1, 1, augment);
    for (size_t row = 0; row < BATCH; row++) {
        const int32_t *pair = alone.labels[0] + row * DP_PAIR_WORDS;
        float share;
        memcpy(&share, &pair[2], sizeof(share));
        assert_true(pair[0] >= 0 && pair[0] < 7 && pair[1] >= 0 && pair[1] < 7);
        assert_true(share >= 0 && share <= 1);
        mixed += pair[0] != pair[1];
    }
    assert_true(mixed > BATCH / 2);
    dp_augment_destroy(augment);
    assert_int_equal(dp_mem_live(), 0);
}

/* Both numbers of a label are those of the sample's own share of the images: label 0 is the row,
 * label 1 is -2 of it, also of a mean. */
static void numbers_become_weighted_means(void **state)
{
    static struct run run, plain;
    struct dp_augment *augment = augment_of("mixup:alpha=1", &bytes_shape);
    int whole = 0;
    (void)state;

    load(&run, false, 1, 1, augment);
    load(&plain, false, 1, 1, NULL);
    for (size_t row = 0; row < BATCH; row++) {
        float two[2], own, share;
        memcpy(&own, plain.labels[0] + row * 2, sizeof(own));
        const struct dp_mix mix = dp_augment_mix(augment, 0, (uint64_t)own, ROWS);
        share = (float)mix.part / DP_MIX_WHOLE;
        memcpy(two, run.labels[0] + row * 2, sizeof(two));
        assert_true(two[0] >= 0 && two[0] < ROWS);
        assert_true(fabsf(two[1] + 2 * two[0]) < 1e-4f);
        assert_true(fabsf(two[0] - (share * own + (1 - share) * (float)mix.row)) < 1e-4f);
        whole += two[0] == floorf(two[0]);
    }
    assert_true(whole < BATCH / 2);
    dp_augment_destroy(augment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_the_beta_distribution),
        cmocka_unit_test(shares_are_the_same_for_ever),
        cmocka_unit_test(every_row_is_mixed_with_as_often),
        cmocka_unit_test(bytes_are_rounded_and_floats_are_not),
        cmocka_unit_test(it_comes_last_and_once),
        cmocka_unit_test(any_ranks_and_threads_get_the_same_pairs),
        cmocka_unit_test(numbers_become_weighted_means),
    };

    return cmocka_run_group_tests(tests, make_rows, NULL);
}
