/* test_own_cache.c - the folder for copies of shards that belongs to a user alone. */
#define _DEFAULT_SOURCE /* mkdtemp() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/data/records/shard_cache.h"
#include "tests/support/picture_files.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_may_not_write_to_it),
        cmocka_unit_test(a_file_or_a_link_in_its_place_is_refused),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
