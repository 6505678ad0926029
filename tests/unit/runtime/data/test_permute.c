/*
 * test_permute.c - the permutation of an epoch: exact for every n, spread evenly, always the same.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/data/permute.h"

/* How many of [0, n) do not stand at exactly one position. */
static size_t wrong_places(uint64_t seed, uint32_t epoch, uint64_t n)
{
    uint8_t *seen = dp_zalloc(n, 1);
    struct dp_permutation p;
    size_t wrong = 0;

    assert_non_null(seen);
    dp_permutation_init(&p, seed, epoch, n);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = dp_permutation_at(&p, i);
        if (at >= n || seen[at]++ != 0) {
            wrong++;
        }
    }
    dp_free(seen);
    return wrong;
}

static void every_number_is_at_exactly_one_position(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) {
        for (uint32_t epoch = 0; epoch < 4; epoch++) {
            assert_int_equal(wrong_places(n, epoch, n), 0);
        }
    }
    assert_int_equal(wrong_places(1, 0, 60000), 0);
    assert_int_equal(wrong_places(1, 7, 65536), 0);
    assert_int_equal(wrong_places(1, 7, 65537), 0);
}

static void huge_sizes_stay_in_range(void **state)
{
    static const uint64_t sizes[] = {(uint64_t)1 << 62, ((uint64_t)1 << 62) - 1,
                                     1000003ull * 999983};
    struct dp_permutation p;
    (void)state;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        dp_permutation_init(&p, 3, 5, sizes[s]);
        assert_true(p.left * p.right >= sizes[s]);
        assert_true(p.left * p.right - sizes[s] < p.left);
        for (uint64_t i = 0; i < 1000; i++) {
            assert_true(dp_permutation_at(&p, i) < sizes[s]);
            assert_true(dp_permutation_at(&p, sizes[s] - 1 - i) < sizes[s]);
        }
    }
}

/* Positions at which two permutations of [0, n) agree. */
static size_t agreements(const struct dp_permutation *a, const struct dp_permutation *b)
{
    size_t count = 0;

    for (uint64_t i = 0; i < a->n; i++) {
        if (dp_permutation_at(a, i) == dp_permutation_at(b, i)) {
            count++;
        }
    }
    return count;
}

/* Two independent permutations agree at one position on average, Poisson: above 12 in 1e-10. */
static void epochs_and_seeds_give_different_orders(void **state)
{
    struct dp_permutation first, epoch, seed, high_seed;
    (void)state;

    dp_permutation_init(&first, 1, 0, 60000);
    dp_permutation_init(&epoch, 1, 1, 60000);
    dp_permutation_init(&seed, 2, 0, 60000);
    dp_permutation_init(&high_seed, 1 + ((uint64_t)1 << 40), 0, 60000);
    assert_true(agreements(&first, &epoch) <= 12);
    assert_true(agreements(&first, &seed) <= 12);
    assert_true(agreements(&first, &high_seed) <= 12);
    assert_int_equal(agreements(&first, &first), 60000);
}

/*
 * Over 20,000 epochs, how often each number stands at each position, against equal shares. The
 * entries of a random permutation matrix have n / (n - 1) times the variance that chi-square counts
 * for each of its (n - 1)^2 degrees of freedom. Returns the distance from the mean, d, in standard
 * deviations, sqrt(2 d).
 */
static double deviations_from_even(uint64_t n)
{
    enum { EPOCHS = 20000, MOST = 30 };
    static int hits[MOST][MOST];
    const double share = (double)EPOCHS / (double)n;
    const double freedom = (double)((n - 1) * (n - 1));
    double chi_square = 0;
    struct dp_permutation p;

    memset(hits, 0, sizeof(hits));
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        dp_permutation_init(&p, 17, epoch, n);
        for (uint64_t i = 0; i < n; i++) {
            hits[i][dp_permutation_at(&p, i)]++;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t j = 0; j < n; j++) {
            const double off = hits[i][j] - share;
            chi_square += off * off / share;
        }
    }
    chi_square *= (double)(n - 1) / (double)n;
    return (chi_square - freedom) / sqrt(2 * freedom);
}

/* 4.5 deviations: reached by chance in one of 10,000 at these degrees of freedom (its upper tail is
 * heavier than a normal one's at few of them). The seed is fixed, so the outcome is too. */
static void every_position_gets_every_number_equally_often(void **state)
{
    static const uint64_t sizes[] = {2, 3, 4, 5, 7, 8, 10, 12, 16, 25, 30};
    (void)state;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const double off = deviations_from_even(sizes[s]);
        if (off <= -4.5 || off >= 4.5) {
            fail_msg("n %d: %.1f standard deviations from even", (int)sizes[s], off);
        }
    }
}

/* Neighbours of the file must not stay together: the first 256 of 60,000 fall into 16 equal parts
 * of the file evenly (15 degrees of freedom: above 44 in 1e-4; the seed is fixed). */
static void a_batch_is_a_sample_of_the_whole_file(void **state)
{
    struct dp_permutation p;
    (void)state;

    for (uint32_t epoch = 0; epoch < 20; epoch++) {
        int hits[16] = {0};
        double chi_square = 0;
        dp_permutation_init(&p, 1, epoch, 60000);
        for (uint64_t i = 0; i < 256; i++) {
            hits[dp_permutation_at(&p, i) * 16 / 60000]++;
        }
        for (int i = 0; i < 16; i++) {
            chi_square += (hits[i] - 16.0) * (hits[i] - 16.0) / 16.0;
        }
        assert_true(chi_square < 44);
    }
}

/* A change here changes what every old run trained on: its checkpoints could not be resumed. The
 * numbers come from a second implementation, written in Python. */
static void the_order_never_changes(void **state)
{
    static const uint64_t first[] = {48969, 56494, 50334, 48697, 40136, 21367, 5368, 27699};
    struct dp_permutation p;
    (void)state;

    dp_permutation_init(&p, 1, 2, 60000);
    for (uint64_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        assert_int_equal(dp_permutation_at(&p, i), first[i]);
    }
    dp_permutation_init(&p, ((uint64_t)5 << 33) + 1, 7, 1000);
    assert_int_equal(dp_permutation_at(&p, 0), 182);
    assert_int_equal(dp_permutation_at(&p, 1), 225);
    assert_int_equal(dp_permutation_at(&p, 500), 599);
    assert_int_equal(dp_permutation_at(&p, 999), 60);
    dp_permutation_init(&p, 1, 2, 65536); /* squares have sides of their own */
    assert_int_equal(dp_permutation_at(&p, 0), 61305);
    assert_int_equal(dp_permutation_at(&p, 32768), 46353);
    assert_int_equal(dp_permutation_at(&p, 65535), 56300);
    dp_permutation_init(&p, 1, 2, 100);
    assert_int_equal(dp_permutation_at(&p, 0), 79);
    assert_int_equal(dp_permutation_at(&p, 99), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_at_exactly_one_position),
        cmocka_unit_test(huge_sizes_stay_in_range),
        cmocka_unit_test(epochs_and_seeds_give_different_orders),
        cmocka_unit_test(every_position_gets_every_number_equally_often),
        cmocka_unit_test(a_batch_is_a_sample_of_the_whole_file),
        cmocka_unit_test(the_order_never_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
