/* test_own_cache.c - the folder for copies of shards that belongs to a user alone. */
#define _DEFAULT_SOURCE /* mkdtemp() */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/shard_cache.h"
#include "tests/support/files/picture_files.h"

static char root[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/test_own_cache.XXXXXX");
    return mkdtemp(root) == NULL || setenv("TMPDIR", root, 1) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}

static unsigned rights_of(const char *dir)
{
    struct stat info;

    assert_int_equal(stat(dir, &info), 0);
    return info.st_mode & 0777;
}

/* Where others could write, as after a `chmod -R`, they no longer can; what is there stays. */
static void others_may_not_write_to_it(void **state)
{
    static const mode_t rights[] = {0777, 0775, 0757, 0700, 0755};
    char dir[DP_PATH_BYTES];
    (void)state;

    assert_int_equal(dp_shard_cache_own(dir), DP_OK);
    assert_int_equal(strncmp(dir, root, strlen(root)), 0);
    write_bytes(dir, "copy", "x", 1);
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
        assert_int_equal(chmod(dir, rights[i]), 0);
        assert_int_equal(dp_shard_cache_own(dir), DP_OK);
        assert_int_equal(rights_of(dir), rights[i] == 0755 ? 0755 : 0700);
    }
    remove_file(dir, "copy");
    assert_int_equal(rmdir(dir), 0);
}

static void a_file_or_a_link_in_its_place_is_refused(void **state)
{
    char dir[DP_PATH_BYTES];
    (void)state;

    assert_int_equal(dp_shard_cache_own(dir), DP_OK);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(symlink(root, dir), 0);
    assert_int_equal(dp_shard_cache_own(dir), DP_ERR_WRITE);
    assert_int_equal(unlink(dir), 0);
    write_bytes(root, strrchr(dir, '/') + 1, "x", 1);
    assert_int_equal(dp_shard_cache_own(dir), DP_ERR_WRITE);
}

static dp_status fetch_text(void *context, char **text, size_t *bytes)
{
    ++*(int *)context;
    *text = dp_strdup("index");
    *bytes = *text != NULL ? strlen(*text) : 0;
    return *text != NULL ? DP_OK : DP_ERR_NOMEM;
}

/* Its only file was written so many seconds ago. */
static void make_older(const char *dir, time_t seconds)
{
    const struct timespec at = {.tv_sec = time(NULL) - seconds};
    DIR *list = opendir(dir);
    const struct dirent *entry;
    int changed = 0;

    assert_non_null(list);
    while ((entry = readdir(list)) != NULL) {
        if (strstr(entry->d_name, ".idx") != NULL && strstr(entry->d_name, "lock") == NULL) {
            const struct timespec times[2] = {at, at};
            assert_int_equal(utimensat(dirfd(list), entry->d_name, times, 0), 0);
            changed++;
        }
    }
    (void)closedir(list);
    assert_int_equal(changed, 1);
}

static void take_text(const struct dp_shard_cache *cache, int *fetched)
{
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(dp_shard_cache_text(cache, "place", fetch_text, fetched, &text, &bytes),
                     DP_OK);
    assert_int_equal(bytes, strlen("index"));
    assert_memory_equal(text, "index", bytes);
    dp_free(text);
}

/* An index of a server, which changes; a clock may be wrong. */
static void a_text_is_fetched_again_once_it_is_old(void **state)
{
    static const time_t ages[] = {3600, -3600, 60};
    const time_t begin = time(NULL);
    struct dp_shard_cache *cache = NULL;
    int fetched = 0;
    char dir[DP_PATH_BYTES];
    (void)state;

    assert_int_equal(dp_shard_cache_own(dir), DP_OK);
    assert_int_equal(dp_shard_cache_open(dir, 1 << 20, &cache), DP_OK);
    take_text(cache, &fetched);
    take_text(cache, &fetched);
    assert_true(fetched == 1 || time(NULL) - begin >= 10); /* a machine may be slow */
    for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
        make_older(dir, ages[i]);
        fetched = 0;
        take_text(cache, &fetched);
        assert_int_equal(fetched, 1);
    }
    dp_shard_cache_close(cache);
    remove_tree(dir);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_may_not_write_to_it),
        cmocka_unit_test(a_text_is_fetched_again_once_it_is_old),
        cmocka_unit_test(a_file_or_a_link_in_its_place_is_refused),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
