/* test_checkpoint.c - a checkpoint is whole, or reported as torn; failing to write one damages
 * nothing. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/files/disk.h"
#include "base/files/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "runtime/checkpoint/checkpoint_save.h"
#include "tests/support/files/small_checkpoint.h"
#include "tests/support/scratch.h"

static void a_saved_checkpoint_is_whole_and_the_latest(void **state)
{
    struct dp_json *fields = NULL;
    char text[512];
    int64_t step = 0;
    (void)state;

    assert_int_equal(save(12, 3), DP_OK);
    assert_latest("step-00000012");
    assert_int_equal(scratch_count("checkpoints"), 2);
    assert_int_equal(scratch_count("checkpoints/latest"), 4);
    assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
    assert_true(scratch_read(scratch_path("checkpoints/latest/state.json"), text, sizeof(text)) >
                0);
    assert_int_equal(dp_json_parse(text, strlen(text), "state.json", &fields), DP_OK);
    assert_true(dp_json_int(dp_json_get(fields, "step"), &step));
    assert_int_equal(step, 12);
    assert_string_equal(dp_json_text(dp_json_get(fields, "schema")), DP_CHECKPOINT_SCHEMA);
    dp_json_destroy(fields);

    memset(values, 0, sizeof(values));
    assert_int_equal(
        dp_weights_load(scratch_path("checkpoints/latest/model.safetensors"), &weights), DP_OK);
    assert_true(values[7] == 12);
}

static void weights_that_are_not_finite_are_never_published(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;

    assert_int_equal(save(1, 3), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 3; i++) {
        values[COUNT - 1] = bad[i];
        assert_int_equal(save(2, 3), DP_ERR_DIVERGED);
        values[COUNT - 1] = 0;
        assert_false(exists(2));
        assert_latest("step-00000001");
    }
    dp_log_set_level(DP_LOG_INFO);
    values[3] = 1e38f;
    assert_int_equal(save(2, 3), DP_OK);
    values[3] = 0;
}

static void a_checkpoint_of_the_same_step_is_replaced(void **state)
{
    (void)state;
    values[9] = 1;
    assert_int_equal(save(5, 3), DP_OK);
    values[9] = 2;
    assert_int_equal(save(5, 3), DP_OK);
    assert_int_equal(scratch_count("checkpoints"), 2);
    assert_latest("step-00000005");
    assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
    values[9] = 0;
    assert_int_equal(
        dp_weights_load(scratch_path("checkpoints/latest/model.safetensors"), &weights), DP_OK);
    assert_true(values[9] == 2);
}

/* After a kill between the renaming of a checkpoint and that of the link. */
static void the_link_is_mended_to_the_checkpoint_that_a_run_goes_on_from(void **state)
{
    (void)state;
    assert_int_equal(save(1, 3), DP_OK);
    assert_int_equal(save(2, 3), DP_OK);
    assert_int_equal(dp_checkpoint_mend(scratch_path("checkpoints/step-00000001")), DP_OK);
    assert_latest("step-00000001");
    assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
    assert_int_equal(dp_checkpoint_mend(scratch_path("checkpoints/step-00000001")), DP_OK);
    assert_latest("step-00000001");
    assert_int_equal(unlink(scratch_path("checkpoints/latest")), 0);
    assert_int_equal(dp_checkpoint_mend(scratch_path("checkpoints/step-00000002")), DP_OK);
    assert_latest("step-00000002");
    assert_int_equal(scratch_count("checkpoints"), 3);
}

/* Flips a bit of a file's byte; a negative place counts from the end. */
static void flip(const char *path, long place)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    assert_non_null(file);
    assert_int_equal(fseek(file, place, place < 0 ? SEEK_END : SEEK_SET), 0);
    byte = fgetc(file);
    assert_true(byte != EOF);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_true(fputc(byte ^ 1, file) != EOF);
    assert_int_equal(fclose(file), 0);
}

static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(folder);
    while (scratch_next(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

static void no_file_stays_open(void **state)
{
    const int before = open_files();
    (void)state;

    assert_int_equal(save(1, 3), DP_OK);
    assert_int_equal(save(1, 3), DP_OK);
    assert_int_equal(open_files(), before);
    assert_true(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")));
    assert_false(dp_checkpoint_dir_is_ours(scratch_path("checkpoints")));
    assert_false(dp_checkpoint_dir_is_ours(scratch_path("none")));
    assert_int_equal(open_files(), before);
    assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
    assert_int_equal(open_files(), before);
}

static void one_flipped_bit_anywhere_is_detected(void **state)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "MANIFEST"};
    static const long places[] = {0, 9, -1};
    char path[64];
    (void)state;

    assert_int_equal(save(1, 3), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 3; k++) {
            (void)snprintf(path, sizeof(path), "checkpoints/latest/%s", names[i]);
            flip(scratch_path(path), places[k]);
            assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_ERR_DATA);
            flip(scratch_path(path), places[k]);
            assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
        }
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void a_torn_checkpoint_is_detected(void **state)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "MANIFEST"};
    char path[64];
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof(path), "checkpoints/latest/%s", names[i]);
        assert_int_equal(save(1, 3), DP_OK);
        assert_int_equal(truncate(scratch_path(path), 20), 0);
        assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_ERR_DATA);
        assert_int_equal(unlink(scratch_path(path)), 0);
        assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_ERR_DATA);
    }
    assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/step-00000099")),
                     DP_ERR_NOINPUT);
    dp_log_set_level(DP_LOG_INFO);
}

static void a_full_disk_leaves_earlier_checkpoints_alone(void **state)
{
    static const long limits[] = {0, 100, 10000, 20500}; /* each stops another file */
    (void)state;

    assert_int_equal(save(1, 1), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 4; i++) {
        scratch_limit(limits[i]);
        assert_int_equal(save(2, 1), i < 3 ? DP_ERR_WRITE : DP_OK);
        scratch_limit(-1);
        assert_int_equal(scratch_count("checkpoints"), 2);
        assert_latest(i < 3 ? "step-00000001" : "step-00000002");
        assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
    }
    dp_log_set_level(DP_LOG_INFO);
}

/* Writes a checkpoint over one of the same step, while the nth of all changes to files fails.
 * Returns how many there were. */
static int save_with_fault(int nth, dp_status *status)
{
    const struct dp_fault fault = {.kind = &dp_fault_eio, .write = nth};
    uint64_t calls[DP_FILE_CALLS];
    int all;

    assert_int_equal(save(2, 2), DP_OK);
    dp_disk_set_faults(&fault, 0);
    *status = save(2, 2);
    all = (int)dp_disk_calls(calls);
    dp_disk_set_faults(NULL, 0);
    return all;
}

/* Whichever it is, the newest checkpoint is whole, and only what may stay is not reported. */
static void survives_every_failed_change_of_a_file(void **state)
{
    int all, failed = 0;
    dp_status status;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    all = save_with_fault(INT_MAX, &status);
    assert_int_equal(status, DP_OK);
    for (int nth = 1; nth <= all; nth++) {
        (void)save_with_fault(nth, &status);
        assert_true(status == DP_OK || status == DP_ERR_WRITE);
        failed += status != DP_OK;
        assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/latest")), DP_OK);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_true(failed > all / 2);
}

static void a_place_that_cannot_hold_checkpoints_is_reported(void **state)
{
    (void)state;
    dp_log_set_level(DP_LOG_NONE);
    scratch_write(scratch_path("checkpoints"), "", 0); /* a file */
    assert_int_equal(save(1, 1), DP_ERR_WRITE);
    scratch_destroy(NULL); /* no parent */
    assert_int_equal(save(1, 1), DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
}

static void a_read_only_folder_is_reported(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        skip(); /* root may write anywhere */
    }
    assert_int_equal(save(1, 1), DP_OK);
    assert_int_equal(chmod(scratch_path("checkpoints"), 0555), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(save(2, 1), DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(chmod(scratch_path("checkpoints"), 0755), 0);
    assert_latest("step-00000001");
}

/* Whichever allocation fails, the earlier checkpoint stays the latest and nothing is left. */
static void survives_every_failed_allocation(void **state)
{
    struct dp_json *fields = dp_json_create();
    const struct dp_checkpoint checkpoint = {
        .step = 2, .weights = &weights, .slots = &slot, .slot_count = 1, .state = fields};
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    assert_int_equal(save(1, 2), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_checkpoint_save(scratch_path("checkpoints"), &checkpoint, 2, 0);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
        assert_int_equal(scratch_count("checkpoints"), status == DP_OK ? 3 : 2);
        assert_latest(status == DP_OK ? "step-00000002" : "step-00000001");
    }
    status = DP_ERR_NOMEM;
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_checkpoint_verify(scratch_path("checkpoints/latest"));
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_json_destroy(fields);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(a_saved_checkpoint_is_whole_and_the_latest),
        WITH_FOLDER(weights_that_are_not_finite_are_never_published),
        WITH_FOLDER(a_checkpoint_of_the_same_step_is_replaced),
        WITH_FOLDER(the_link_is_mended_to_the_checkpoint_that_a_run_goes_on_from),
        WITH_FOLDER(no_file_stays_open),
        WITH_FOLDER(one_flipped_bit_anywhere_is_detected),
        WITH_FOLDER(a_torn_checkpoint_is_detected),
        WITH_FOLDER(a_full_disk_leaves_earlier_checkpoints_alone),
        WITH_FOLDER(survives_every_failed_change_of_a_file),
        WITH_FOLDER(a_place_that_cannot_hold_checkpoints_is_reported),
        WITH_FOLDER(a_read_only_folder_is_reported),
        WITH_FOLDER(survives_every_failed_allocation),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
