/*
 * test_test_rows.c - rows of the test set as evaluations take them: from memory, or read by one
 * user with several threads, or by several users at once.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/row_print.h"
#include "runtime/data/source.h"
#include "runtime/data/stream/test_rows.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/held_mutexes.h"
#include "tests/support/scratch.h"

enum { TRAIN = 4, TEST = 60, FEATURES = 5, ROW = FEATURES * sizeof(float), USERS = 3 };

static float numbers[TEST][FEATURES];
static int32_t labels[TEST];
static struct dp_source_config config; /* borrowed by the data set */

static int make_numbers(void **state)
{
    for (int i = 0; i < TEST; i++) {
        labels[i] = i % 7;
        for (int k = 0; k < FEATURES; k++) {
            numbers[i][k] = (float)(i * 10 + k);
        }
    }
    return scratch_create_fast(state);
}

/* Arrays of these numbers. */
static struct dp_samples *arrays(void)
{
    uint8_t bytes[TEST];
    struct dp_samples *samples = NULL;

    for (int i = 0; i < TEST; i++) {
        bytes[i] = (uint8_t)labels[i];
    }
    npy_file(scratch_folder, "train_images.npy", "<f4", "(4, 5)", numbers, (size_t)TRAIN * ROW);
    npy_file(scratch_folder, "train_labels.npy", "|u1", "(4,)", bytes, TRAIN);
    npy_file(scratch_folder, "test_images.npy", "<f4", "(60, 5)", numbers, sizeof(numbers));
    npy_file(scratch_folder, "test_labels.npy", "|u1", "(60,)", bytes, TEST);
    config = (struct dp_source_config){.dir = scratch_folder, .input = {.count = FEATURES}};
    assert_int_equal(dp_samples_open("npy", &config, &samples), DP_OK);
    return samples;
}

static struct dp_test_rows *rows_of(struct dp_samples *samples, int users, int threads, bool skips)
{
    const struct dp_test_rows_config c = {.count = TEST,
                                          .sample_bytes =
                                              dp_shape_bytes(&dp_samples_info(samples)->shape),
                                          .label_words = 1,
                                          .samples = samples,
                                          .skips = skips,
                                          .users = users,
                                          .threads = threads};
    struct dp_test_rows *rows = NULL;

    assert_int_equal(dp_test_rows_create(&c, &rows), DP_OK);
    assert_int_equal(dp_test_rows_count(rows), TEST);
    return rows;
}

/* How many parts of the test set a user gets wrong: of rising lengths, from all over it. */
static size_t count_wrong(struct dp_test_rows *rows, int user)
{
    size_t wrong = 0;

    for (size_t n = 0; n < 12; n++) {
        const size_t first = n * 17 % 40, count = n < 11 ? n * 2 % 21 : TEST - first;
        const uint8_t *images = NULL;
        const int32_t *found = NULL;
        wrong += dp_test_rows_get(rows, user, first, count, &images, &found) != DP_OK ||
                 memcmp(images, numbers[first], count * ROW) != 0 ||
                 memcmp(found, labels + first, count * sizeof(*labels)) != 0;
    }
    return wrong;
}

static void one_user_gets_rows_from_any_number_of_threads(void **state)
{
    struct dp_samples *samples = arrays();
    (void)state;

    for (int threads = 1; threads <= 4; threads++) {
        struct dp_test_rows *rows = rows_of(samples, 1, threads, false);
        assert_int_equal(count_wrong(rows, 0), 0);
        dp_test_rows_destroy(rows);
    }
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

struct user {
    struct dp_test_rows *rows;
    int number;
    size_t wrong;
};

static void *use(void *arg)
{
    struct user *user = arg;

    user->wrong = count_wrong(user->rows, user->number);
    return NULL;
}

static void users_at_the_same_time_get_their_own_rows(void **state)
{
    struct dp_samples *samples = arrays();
    (void)state;

    for (int users = 2; users <= USERS; users++) {
        struct dp_test_rows *rows = rows_of(samples, users, 1, false);
        struct user all[USERS];
        pthread_t threads[USERS];
        for (int i = 0; i < users; i++) {
            all[i] = (struct user){rows, i, 1};
            assert_int_equal(pthread_create(&threads[i], NULL, use, &all[i]), 0);
        }
        for (int i = 0; i < users; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(all[i].wrong, 0);
        }
        dp_test_rows_destroy(rows);
    }
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

static void rows_in_memory_are_given_where_they_lie_and_checked(void **state)
{
    static uint32_t prints[TEST];
    struct dp_row_prints all = {(const uint8_t *)numbers, labels, TEST, ROW, 1, NULL};
    struct dp_test_rows_config c = {.images = (const uint8_t *)numbers,
                                    .labels = labels,
                                    .count = TEST,
                                    .sample_bytes = ROW,
                                    .label_words = 1,
                                    .users = 1,
                                    .threads = 1};
    struct dp_test_rows *rows = NULL;
    const uint8_t *images = NULL;
    const int32_t *found = NULL;
    (void)state;

    dp_row_prints_make(&all, prints);
    c.prints = prints;
    assert_int_equal(dp_test_rows_create(&c, &rows), DP_OK);
    assert_int_equal(dp_test_rows_get(rows, 0, 7, 3, &images, &found), DP_OK);
    assert_ptr_equal(images, numbers[7]);
    assert_ptr_equal(found, labels + 7);
    numbers[9][1] += 1.0f;
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_test_rows_get(rows, 0, 7, 3, &images, &found), DP_ERR_DISAGREE);
    dp_log_set_level(DP_LOG_INFO);
    for (size_t first = 7; first <= 10; first += 3) { /* those before and after it are right */
        assert_int_equal(dp_test_rows_get(rows, 0, first, 2, &images, &found), DP_OK);
    }
    dp_test_rows_destroy(rows);
}

/* ---- bad samples ---- */

enum { SIDE = 3, PIXELS = SIDE * SIDE * 3, BAD = 23, WORSE = 25 };

static const char *name_of(size_t u)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "test/a/%02zu.png", u);
    return name;
}

/* Pictures, two of which are damaged. */
static struct dp_samples *pictures(void)
{
    struct dp_samples *samples = NULL;

    picture_file(scratch_folder, "train/a/0.png", SIDE, SIDE, 3, 0);
    for (size_t u = 0; u < TEST; u++) {
        picture_file(scratch_folder, name_of(u), SIDE, SIDE, 3, (unsigned)u);
    }
    write_bytes(scratch_folder, name_of(BAD), "\x89PNG\r\n\x1a\n", 8);
    write_bytes(scratch_folder, name_of(WORSE), "\x89PNG\r\n\x1a\n", 8);
    config = (struct dp_source_config){
        .dir = scratch_folder,
        .input = {.height = SIDE, .width = SIDE, .channels = 3, .count = PIXELS}};
    assert_int_equal(dp_samples_open("folder", &config, &samples), DP_OK);
    return samples;
}

/* What is kept of the first bad row; nothing was printed. */
static const char *kept(const struct dp_test_rows *rows, int errors)
{
    const char *error;

    assert_int_equal(dp_test_rows_failure(rows, &error), DP_ERR_DATA);
    assert_int_equal(dp_log_errors(), errors);
    return error;
}

/* Whoever reads it, the first one is kept. */
static void the_first_bad_row_is_kept(void **state)
{
    struct dp_samples *samples = pictures();
    const int errors = dp_log_errors();
    const char *error;
    (void)state;

    assert_int_equal(dp_test_rows_failure(NULL, &error), DP_OK);

    for (int threads = 1; threads <= 4; threads++) {
        struct dp_test_rows *rows = rows_of(samples, 1, threads, false);
        const uint8_t *images = NULL;
        const int32_t *found = NULL;
        assert_int_equal(dp_test_rows_failure(rows, &error), DP_OK);
        assert_int_equal(dp_test_rows_get(rows, 0, 0, TEST, &images, &found), DP_ERR_DATA);
        assert_non_null(strstr(kept(rows, errors), name_of(BAD)));
        assert_int_equal(dp_test_rows_get(rows, 0, 0, BAD, &images, &found), DP_OK);
        assert_int_equal(images[0], picture_value(0, 0, 0, 0));
        assert_int_equal(dp_test_rows_get(rows, 0, WORSE + 1, 3, &images, &found), DP_OK);
        assert_int_equal(images[PIXELS], picture_value(WORSE + 2, 0, 0, 0));
        dp_test_rows_destroy(rows);
    }
    dp_samples_close(samples);
}

/* Lanes take rows for themselves: one line is said of all that is bad. */
static void of_users_the_first_bad_row_is_kept(void **state)
{
    struct dp_samples *samples = pictures();
    struct dp_test_rows *rows = rows_of(samples, 2, 1, false);
    const int errors = dp_log_errors();
    const uint8_t *images = NULL;
    const int32_t *found = NULL;
    (void)state;

    assert_int_equal(dp_test_rows_get(rows, 1, WORSE, 2, &images, &found), DP_ERR_DATA);
    assert_non_null(strstr(kept(rows, errors), name_of(WORSE)));
    assert_int_equal(dp_test_rows_get(rows, 0, 0, WORSE, &images, &found), DP_ERR_DATA);
    assert_non_null(strstr(kept(rows, errors), name_of(BAD)));
    assert_int_equal(dp_test_rows_get(rows, 1, WORSE, 1, &images, &found), DP_ERR_DATA);
    assert_non_null(strstr(kept(rows, errors), name_of(BAD)));
    dp_test_rows_destroy(rows);
    dp_samples_close(samples);
}

/* ---- a source that is bad for helpers ---- */

static pthread_t user_thread;
static atomic_bool helped;

static dp_status apart_open(void *state, const struct dp_source_config *c,
                            struct dp_source_info *info)
{
    (void)state;
    *info = (struct dp_source_info){.count = {TRAIN, TEST},
                                    .shape = {.count = FEATURES, .element = DP_ELEMENT_FLOAT}};
    info->classes = c->classes;
    return DP_OK;
}

/* The user's own thread gives its first row once a helper has failed. */
static dp_status apart_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                             struct dp_raw *raw)
{
    (void)state;
    (void)fetcher;
    (void)set;
    if (!pthread_equal(pthread_self(), user_thread)) {
        atomic_store(&helped, true);
        return DP_FAIL(DP_ERR_DATA, "row %zu of a helper", row);
    }
    while (!atomic_load(&helped)) {
        (void)sched_yield();
    }
    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = numbers[row],
                           .bytes = ROW,
                           .shape = {.count = FEATURES, .element = DP_ELEMENT_FLOAT},
                           .label = labels[row]};
    return DP_OK;
}

static void apart_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    (void)state;
    (void)snprintf(text, size, "%d: row %zu", (int)set, row);
}

static void apart_close(void *state)
{
    (void)state;
}

static const struct dp_source apart = {
    .plugin = {.name = "apart", .help = "for this test", .state_bytes = 1},
    .open = apart_open,
    .fetch = apart_fetch,
    .name = apart_name,
    .close = apart_close,
};

static void what_a_helper_finds_bad_is_kept(void **state)
{
    struct dp_samples *samples = NULL;
    const int errors = dp_log_errors();
    (void)state;

    user_thread = pthread_self();
    config = (struct dp_source_config){.input = {.count = FEATURES}};
    atomic_store(&helped, true);
    assert_int_equal(dp_samples_open("apart", &config, &samples), DP_OK);
    for (int threads = 2; threads <= 4; threads++) {
        struct dp_test_rows *rows = rows_of(samples, 1, threads, false);
        const uint8_t *images = NULL;
        const int32_t *found = NULL;
        atomic_store(&helped, false);
        assert_int_equal(dp_test_rows_get(rows, 0, 0, TEST, &images, &found), DP_ERR_DATA);
        assert_non_null(strstr(kept(rows, errors), " of a helper"));
        dp_test_rows_destroy(rows);
    }
    dp_samples_close(samples);
}

/* Row 3 is the first whose label is not below 3. */
static void a_label_that_is_too_large_names_its_sample(void **state)
{
    struct dp_samples *samples = NULL;
    const int errors = dp_log_errors();
    const uint8_t *images = NULL;
    const int32_t *found = NULL;
    (void)state;

    user_thread = pthread_self();
    atomic_store(&helped, true);
    config = (struct dp_source_config){.input = {.count = FEATURES}, .classes = 3};
    assert_int_equal(dp_samples_open("apart", &config, &samples), DP_OK);
    struct dp_test_rows *rows = rows_of(samples, 1, 1, false);
    assert_int_equal(dp_test_rows_get(rows, 0, 0, TEST, &images, &found), DP_ERR_DATA);
    assert_non_null(strstr(kept(rows, errors), "1: row 3: "));
    dp_test_rows_destroy(rows);
    dp_samples_close(samples);
}

/* The next good one stands in its place. */
static void bad_rows_are_replaced_where_that_is_asked_for(void **state)
{
    struct dp_samples *samples = pictures();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int users = 1; users <= 2; users++) {
        struct dp_test_rows *rows = rows_of(samples, users, 1, true);
        const uint8_t *images = NULL;
        const int32_t *found = NULL;
        assert_int_equal(dp_test_rows_get(rows, users - 1, 0, TEST, &images, &found), DP_OK);
        assert_memory_equal(images + (size_t)BAD * PIXELS, images + (size_t)(BAD + 1) * PIXELS,
                            PIXELS);
        assert_memory_equal(images + (size_t)WORSE * PIXELS, images + (size_t)(WORSE + 1) * PIXELS,
                            PIXELS);
        dp_test_rows_destroy(rows);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_samples_close(samples);
}

static void creating_survives_every_failed_allocation(void **state)
{
    struct dp_samples *samples = arrays();
    const struct dp_test_rows_config c = {.count = TEST,
                                          .sample_bytes = ROW,
                                          .label_words = 1,
                                          .samples = samples,
                                          .users = 1,
                                          .threads = 2};
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_test_rows *rows = NULL;
        dp_mem_fail_nth(nth);
        status = dp_test_rows_create(&c, &rows);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((rows != NULL) == (status == DP_OK));
        dp_test_rows_destroy(rows);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_samples_close(samples);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_numbers, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(one_user_gets_rows_from_any_number_of_threads),
        CASE(users_at_the_same_time_get_their_own_rows),
        CASE(rows_in_memory_are_given_where_they_lie_and_checked),
        CASE(the_first_bad_row_is_kept),
        CASE(of_users_the_first_bad_row_is_kept),
        CASE(what_a_helper_finds_bad_is_kept),
        CASE(a_label_that_is_too_large_names_its_sample),
        CASE(bad_rows_are_replaced_where_that_is_asked_for),
        CASE(creating_survives_every_failed_allocation),
    };

    if (dp_plugin_add(&dp_sources, &apart.plugin) != DP_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("test_rows", tests, NULL, NULL);
}
