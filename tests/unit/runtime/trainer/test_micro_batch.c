/* test_micro_batch.c - how a rank's rows are split into passes, and how bytes become numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/trainer/compute/micro_batch.h"

static void passes_cover_all_rows_and_tensors_become_ready_in_the_last(void **state)
{
    (void)state;
    for (size_t rows = 0; rows < 70; rows++) {
        for (size_t most = 0; most < 20; most++) {
            const size_t k = dp_micro_batch_count(rows, most);
            size_t at = 0;
            assert_int_equal(k, rows == 0 || most == 0 ? 1 : (rows + most - 1) / most);
            for (size_t i = 0; i < k; i++) {
                const struct dp_micro_batch part = dp_micro_batch_at(rows, most, i);
                assert_int_equal(part.rows.begin, at);
                assert_int_equal(part.rows.begin, i * rows / k);
                assert_true(part.rows.count <= dp_micro_batch_most(rows, most));
                assert_true(part.rows.count > 0 || rows == 0);
                assert_int_equal(part.adds, i > 0);
                assert_int_equal(part.last, i + 1 == k);
                at += part.rows.count;
            }
            assert_int_equal(at, rows);
        }
    }
}

/* y = (x / 255 - mean) / std, as torchvision's ToTensor and Normalize; scale and shift are each
 * rounded once, and so is the result: 3 * 2^-24 of the largest. */
static void check_normalize(double white, const struct dp_numbers *mean,
                            const struct dp_numbers *std)
{
    struct dp_normalize n;

    assert_int_equal(dp_normalize_init(&n, 3, white, mean, std), DP_OK);
    for (size_t c = 0; c < 3; c++) {
        const double m = mean->count == 0 ? 0.0 : mean->value[mean->count == 1 ? 0 : c];
        const double s = std->count == 0 ? 1.0 : std->value[std->count == 1 ? 0 : c];
        for (int x = 0; x < 256; x += 5) {
            const double expected = (x / white - m) / s;
            const double got = (double)((float)x * n.scale[c] + n.shift[c]);
            assert_true(fabs(got - expected) <= 1.8e-7 * (255.0 / white + m) / s);
        }
    }
    dp_normalize_fini(&n);
    assert_null(n.scale);
}

static void samples_are_scaled_and_normalised_by_channel(void **state)
{
    const struct dp_numbers none = {.count = 0}, one = {.count = 1, .value = {0.286}},
                            three = {.count = 3, .value = {0.4914, 0.4822, 0.4465}},
                            deviations = {.count = 3, .value = {0.247, 0.2435, 0.2616}};
    (void)state;

    for (int i = 0; i < 2; i++) { /* of bytes, and of float32, which nothing is known about */
        const double white = i == 0 ? 255.0 : 1.0;
        check_normalize(white, &none, &none);
        check_normalize(white, &one, &one);
        check_normalize(white, &three, &deviations);
        check_normalize(white, &one, &deviations);
    }
}

static void means_are_for_channels_or_for_features(void **state)
{
    const struct dp_numbers none = {.count = 0}, one = {.count = 1}, five = {.count = 5};
    const struct dp_shape image = {.dims = 3, .dim = {28, 28, 3}}, flat = {.dims = 1, .dim = {5}};
    (void)state;

    assert_int_equal(dp_normalize_channels(&image, &none, &none), 3);
    assert_int_equal(dp_normalize_channels(&flat, &none, &none), 1);
    assert_int_equal(dp_normalize_channels(&flat, &one, &one), 1);
    assert_int_equal(dp_normalize_channels(&flat, &one, &five), 5);
    assert_int_equal(dp_normalize_channels(&flat, &five, &one), 5);
}

static void normalising_survives_every_failed_allocation(void **state)
{
    const struct dp_numbers none = {.count = 0};
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_normalize n;
        dp_mem_fail_nth(nth);
        status = dp_normalize_init(&n, 3, 255.0, &none, &none);
        dp_mem_fail_nth(0);
        if (status == DP_OK) {
            dp_normalize_fini(&n);
        }
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_cover_all_rows_and_tensors_become_ready_in_the_last),
        cmocka_unit_test(samples_are_scaled_and_normalised_by_channel),
        cmocka_unit_test(means_are_for_channels_or_for_features),
        cmocka_unit_test(normalising_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("micro_batch", tests, NULL, NULL);
}
