/* test_shard_copy.c - a copy of a shard, which another job may delete at any time. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/shard_cache.h"
#include "tests/support/scratch.h"

static const char text[] = "what a shard holds";
static const char name[] = "0123456789abcdef0123456789abcdef.rec";

/* The linker takes this one, and not libc's: as if a job without room deleted each copy as soon as
 * it has its name. */
int rename(const char *old, const char *new)
{
    const int renamed = renameat(AT_FDCWD, old, AT_FDCWD, new);

    return renamed == 0 ? unlink(new) : renamed;
}

static dp_status fill(void *context, struct dp_file *out)
{
    (void)context;
    return dp_file_append(out, text, sizeof(text));
}

static void a_copy_that_another_job_deletes_at_once_is_read(void **state)
{
    const struct dp_cache_want want = {
        .name = name, .origin = "shard", .bytes = sizeof(text), .fill = fill};
    struct dp_data_file copy = {NULL, 0, 0};
    struct dp_shard_cache *cache;
    char read[sizeof(text)], path[128];
    (void)state;

    (void)snprintf(path, sizeof(path), "%s/%s", scratch_folder, name);
    assert_int_equal(dp_shard_cache_open(scratch_folder, 0, &cache), DP_OK);
    assert_int_equal(dp_shard_cache_get(cache, &want, &copy), DP_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_string_equal(copy.path, path);
    assert_int_equal(dp_data_file_read(&copy, 0, read, sizeof(read)), DP_OK);
    assert_string_equal(read, text);
    dp_data_file_close(&copy);
    dp_shard_cache_close(cache);
    assert_int_equal(dp_mem_live(), 0);
}

/* It is asked for by name, which needs a file. */
static void a_folder_that_is_gone_is_reported(void **state)
{
    const struct dp_cache_want want = {
        .name = name, .origin = "shard", .bytes = sizeof(text), .fill = fill};
    struct dp_data_file copy = {NULL, 0, 0};
    struct dp_log_capture capture;
    struct dp_shard_cache *cache;
    char folder[128];
    (void)state;

    (void)snprintf(folder, sizeof(folder), "%s/gone", scratch_folder);
    assert_int_equal(dp_shard_cache_open(folder, 0, &cache), DP_OK);
    assert_int_equal(rmdir(folder), 0);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_shard_cache_get(cache, &want, &copy), DP_ERR_WRITE);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture), "No such file or directory"));
    dp_shard_cache_close(cache);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_that_another_job_deletes_at_once_is_read,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_folder_that_is_gone_is_reported, scratch_create,
                                        scratch_destroy),
    };

    return cmocka_run_group_tests_name("shard_copy", tests, NULL, NULL);
}
