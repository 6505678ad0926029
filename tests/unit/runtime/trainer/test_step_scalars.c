/* test_step_scalars.c - requests and agreement hashes in the tail of the gradient. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/random.h"
#include "runtime/trainer/step_scalars.h"

/* The sum of the tails of `ranks` ranks, added one after the other: float32 must be exact. */
static void add_ranks(float *sum, const struct dp_step_scalars *scalars, int ranks)
{
    float tail[DP_STEP_SCALARS_COUNT] = {0};

    dp_step_scalars_write(tail, scalars);
    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < DP_STEP_SCALARS_COUNT; i++) {
            sum[i] += tail[i];
        }
    }
}

static uint64_t random_hash(size_t i)
{
    return (uint64_t)dp_random_u32(1, DP_RANDOM_TEST, 0, 2 * i) << 32 |
           dp_random_u32(1, DP_RANDOM_TEST, 0, 2 * i + 1);
}

static void equal_hashes_agree_on_any_number_of_ranks(void **state)
{
    static const int ranks[] = {1, 2, 3, 7, 1000, 8191, DP_STEP_SCALARS_RANKS_MAX};
    (void)state;

    for (size_t n = 0; n < sizeof(ranks) / sizeof(ranks[0]); n++) {
        for (size_t i = 0; i < 8; i++) {
            /* All bits set gives the largest pieces, and so the largest sums. */
            const uint64_t hash = i == 0 ? UINT64_MAX : random_hash(i);
            const struct dp_step_scalars scalars = {.hash = {hash, ~hash, hash * 3}};
            float sum[DP_STEP_SCALARS_COUNT] = {0};
            struct dp_step_report report;
            add_ranks(sum, &scalars, ranks[n]);
            assert_int_equal(dp_step_scalars_read(sum, &scalars, ranks[n], 5, &report), DP_OK);
            assert_false(report.split);
        }
    }
}

/* Differing weights are reported to the caller; other differences end the step. */
static bool sees(const float *sum, const struct dp_step_scalars *scalars, int ranks, int what)
{
    struct dp_step_report report = {.split = what != DP_AGREE_WEIGHTS};
    const dp_status status = dp_step_scalars_read(sum, scalars, ranks, 5, &report);

    return what == DP_AGREE_WEIGHTS ? status == DP_OK && report.split : status == DP_ERR_DISAGREE;
}

/* One bit of one hash differs on one rank: that rank sees it, and with two ranks so does the
 * other; with more, whoever has the majority's hash. */
static void one_bit_on_one_rank_is_seen_by_all(void **state)
{
    static const int ranks[] = {2, 3, 8, 100, DP_STEP_SCALARS_RANKS_MAX};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t n = 0; n < sizeof(ranks) / sizeof(ranks[0]); n++) {
        for (int bit = 0; bit < DP_AGREE_COUNT * 64; bit++) {
            struct dp_step_scalars same = {
                .hash = {random_hash(1), random_hash(2), random_hash(3)}};
            struct dp_step_scalars other = same;
            float sum[DP_STEP_SCALARS_COUNT] = {0}, tail[DP_STEP_SCALARS_COUNT] = {0};
            other.hash[bit / 64] ^= (uint64_t)1 << bit % 64;
            dp_step_scalars_write(tail, &same);
            for (int i = 0; i < DP_STEP_SCALARS_COUNT; i++) {
                sum[i] = tail[i] * (float)(ranks[n] - 1); /* exact: the test above */
            }
            add_ranks(sum, &other, 1);
            assert_true(sees(sum, &same, ranks[n], bit / 64));
            assert_true(sees(sum, &other, ranks[n], bit / 64));
        }
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void a_request_of_one_rank_is_known_to_all(void **state)
{
    (void)state;
    for (int request = 0; request < DP_REQUEST_COUNT; request++) {
        const struct dp_step_scalars none = {.hash = {1, 2, 3}};
        struct dp_step_scalars one = none;
        struct dp_step_report report;
        float sum[DP_STEP_SCALARS_COUNT] = {0};
        one.request[request] = true;
        add_ranks(sum, &none, DP_STEP_SCALARS_RANKS_MAX - 1);
        add_ranks(sum, &one, 1);
        assert_int_equal(dp_step_scalars_read(sum, &none, DP_STEP_SCALARS_RANKS_MAX, 0, &report),
                         DP_OK);
        for (int i = 0; i < DP_REQUEST_COUNT; i++) {
            assert_int_equal(report.request[i], i == request);
        }
    }
}

static void loss_and_correct_answers_are_not_changed_and_read_back(void **state)
{
    const struct dp_step_scalars scalars = {.hash = {7, 8, 9}};
    float tail[DP_STEP_SCALARS_COUNT] = {0.25f, 3.0f};
    struct dp_step_report report;
    (void)state;

    dp_step_scalars_write(tail, &scalars);
    assert_int_equal(dp_step_scalars_read(tail, &scalars, 1, 0, &report), DP_OK);
    assert_true(report.loss == 0.25f && report.score == 3.0f);
    assert_false(report.request[DP_REQUEST_STOP] || report.request[DP_REQUEST_SAVE]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_hashes_agree_on_any_number_of_ranks),
        cmocka_unit_test(one_bit_on_one_rank_is_seen_by_all),
        cmocka_unit_test(a_request_of_one_rank_is_known_to_all),
        cmocka_unit_test(loss_and_correct_answers_are_not_changed_and_read_back),
    };
    return cmocka_run_group_tests_name("step_scalars", tests, NULL, NULL);
}
