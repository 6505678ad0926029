/*
 * test_cache_room.c - what a cache of copies deletes: the one that was not used for longest, and
 * halves that nobody makes.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/shard_cache.h"
#include "tests/support/scratch.h"

enum { BYTES = 8192 };

static const char *path_of(unsigned hash, const char *ending)
{
    char name[96];

    (void)snprintf(name, sizeof(name), "cache/%032x%s", hash, ending);
    return scratch_path(name);
}

/* Used at that time. */
static void make(unsigned hash, const char *ending, time_t seconds, long ns)
{
    static const char content[BYTES];
    const struct timespec at = {.tv_sec = seconds, .tv_nsec = ns}, times[2] = {at, at};

    scratch_write(path_of(hash, ending), content, BYTES);
    assert_int_equal(utimensat(AT_FDCWD, path_of(hash, ending), times, 0), 0);
}

static bool is_there(unsigned hash, const char *ending)
{
    return access(path_of(hash, ending), F_OK) == 0;
}

static dp_status fill(void *context, struct dp_file *out)
{
    (void)context;
    return dp_file_append(out, (const char[BYTES]){0}, BYTES);
}

/* One more copy, for which there is room beside one other. */
static void add(void)
{
    char name[48];
    const struct dp_cache_want want = {
        .name = name, .origin = "origin", .bytes = BYTES, .fill = fill};
    struct dp_shard_cache *cache = NULL;
    struct dp_data_file copy;

    (void)snprintf(name, sizeof(name), "%032x.rec", 0xccu);
    assert_int_equal(dp_shard_cache_open(scratch_path("cache"), 5 * BYTES / 2, &cache), DP_OK);
    assert_int_equal(dp_shard_cache_get(cache, &want, &copy), DP_OK);
    dp_data_file_close(&copy);
    dp_shard_cache_close(cache);
    assert_true(is_there(0xcc, ".rec"));
    assert_int_equal(dp_mem_live(), 0);
}

static void the_copy_that_was_not_used_for_longest_is_deleted(void **state)
{
    static const struct {
        time_t seconds;
        long ns;
    } later[] = {{1, 0}, {1, -500}, {0, 1}, {0, 400}};
    const time_t base = time(NULL) - 1000;
    (void)state;

    for (size_t i = 0; i < 2 * sizeof(later) / sizeof(later[0]); i++) {
        const unsigned older = i % 2 == 0 ? 0xaa : 0xbb, newer = i % 2 == 0 ? 0xbb : 0xaa;
        assert_int_equal(mkdir(scratch_path("cache"), 0700), 0);
        make(older, ".rec", base, 500);
        make(newer, ".rec", base + later[i / 2].seconds, 500 + later[i / 2].ns);
        add();
        assert_false(is_there(older, ".rec"));
        assert_true(is_there(newer, ".rec"));
        scratch_remove(scratch_path("cache"));
    }
}

static void halves_that_nobody_makes_are_deleted_once_they_are_old(void **state)
{
    static const char *const endings[] = {".rec.part", ".end.part"};
    const time_t now = time(NULL);
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mkdir(scratch_path("cache"), 0700), 0);
        make(0xaa, endings[i], now - 7200, 0);
        make(0xbb, ".other.part", now - 7200, 0); /* nothing of ours */
        add();
        assert_false(is_there(0xaa, endings[i]));
        assert_true(is_there(0xbb, ".other.part"));
        scratch_remove(scratch_path("cache"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_copy_that_was_not_used_for_longest_is_deleted,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(halves_that_nobody_makes_are_deleted_once_they_are_old,
                                        scratch_create_fast, scratch_destroy),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("cache_room", tests, NULL, NULL);
}
