/* test_checkpoint_dir.c - which checkpoints are kept, and that nothing else is ever deleted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/files/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system/process.h"
#include "base/system/process_tag.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "runtime/checkpoint/checkpoint_save.h"
#include "tests/support/files/small_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/stderr_text.h"

static void the_newest_are_kept_and_the_rest_deleted(void **state)
{
    (void)state;
    for (uint64_t step = 1; step <= 12; step++) {
        assert_int_equal(save(step, 3), DP_OK);
    }
    assert_int_equal(scratch_count("checkpoints"), 4);
    assert_true(exists(10) && exists(11) && exists(12));
    assert_latest("step-00000012");
    assert_int_equal(save(13, 1), DP_OK);
    assert_int_equal(scratch_count("checkpoints"), 2);
    assert_int_equal(save(14, 0), DP_OK); /* 0: all */
    assert_true(exists(13) && exists(14));
}

static void checkpoints_after_the_resumed_one_are_kept(void **state)
{
    (void)state;
    assert_int_equal(save(500, 2), DP_OK);
    assert_int_equal(save(600, 2), DP_OK);
    assert_int_equal(save(100, 2), DP_OK); /* an earlier checkpoint was resumed */
    assert_latest("step-00000100");
    assert_int_equal(save(200, 2), DP_OK);
    assert_true(exists(100) && exists(200) && exists(500) && exists(600));
    assert_int_equal(save(550, 2), DP_OK); /* now 500 is one of those before it */
    assert_true(!exists(100) && !exists(200) && exists(500) && exists(550) && exists(600));
}

static void keep_every_keeps_checkpoints_for_good(void **state)
{
    (void)state;
    for (uint64_t step = 1; step <= 12; step++) {
        assert_int_equal(save_every(step, 2, 5), DP_OK);
    }
    assert_int_equal(scratch_count("checkpoints"), 5);
    assert_true(exists(5) && exists(10) && exists(11) && exists(12));
    for (uint64_t step = 13; step <= 16; step++) {
        assert_int_equal(save_every(step, 1, 1), DP_OK); /* all of them */
    }
    assert_true(exists(13) && exists(14) && exists(15) && exists(16));
}

/* A file of the user's in place of the link stays; the checkpoint is found by its step. */
static void latest_is_replaced_only_if_it_is_a_link(void **state)
{
    char found[DP_PATH_BYTES], text[16];
    (void)state;

    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == 0) {
            scratch_write(scratch_path("checkpoints/latest"), "thesis", 6);
        } else {
            assert_int_equal(mkdir(scratch_path("checkpoints/latest"), 0777), 0);
        }
        stderr_begin();
        assert_int_equal(save(1, 1), DP_OK);
        stderr_end();
        assert_non_null(strstr(stderr_text, "checkpoints/latest is not a symbolic link"));
        assert_int_equal(scratch_count("checkpoints"), 2);
        assert_int_equal(dp_checkpoint_dir_find(scratch_path("checkpoints"), found, NULL), DP_OK);
        assert_string_equal(strrchr(found, '/'), "/step-00000001");
        if (turn == 0) {
            assert_int_equal(scratch_read(scratch_path("checkpoints/latest"), text, sizeof(text)),
                             6);
        }
        assert_int_equal(remove(scratch_path("checkpoints/latest")), 0);
    }
}

/* Nothing but a checkpoint's name is that of one. */
static void numbers_of_other_lengths_are_no_steps(void **state)
{
    static const char *const names[] = {"step-0000006", "step-00000000000000000006",
                                        "step-0x000006", "stop-00000006"};
    char from[64], found[DP_PATH_BYTES];
    (void)state;

    assert_int_equal(save(5, 0), DP_OK);
    assert_int_equal(save(6, 0), DP_OK);
    assert_int_equal(unlink(scratch_path("checkpoints/latest")), 0);
    (void)snprintf(from, sizeof(from), "checkpoints/step-00000006");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char to[64], path[DP_PATH_BYTES];
        (void)snprintf(to, sizeof(to), "checkpoints/%s", names[i]);
        (void)snprintf(path, sizeof(path), "%s", scratch_path(from));
        assert_int_equal(rename(path, scratch_path(to)), 0);
        stderr_begin();
        assert_int_equal(dp_checkpoint_dir_find(scratch_path("checkpoints"), found, NULL), DP_OK);
        stderr_end();
        assert_string_equal(stderr_text, ""); /* not even a torn one */
        assert_string_equal(strrchr(found, '/'), "/step-00000005");
        memcpy(from, to, sizeof(from));
    }
    assert_int_equal(save(1234567890123456789, 0), DP_OK);
    assert_int_equal(unlink(scratch_path("checkpoints/latest")), 0);
    assert_int_equal(dp_checkpoint_dir_find(scratch_path("checkpoints"), found, NULL), DP_OK);
    assert_string_equal(strrchr(found, '/'), "/step-1234567890123456789");
}

/* "checkpoints/NAME-TAG", of a process on this host or on another one that started then. */
static const char *hidden_since(const char *name, const char *host, pid_t pid, uint64_t start)
{
    char tag[DP_PROCESS_TAG_BYTES], path[256];

    dp_process_tag(tag);
    *strrchr(tag, '-') = '\0';
    (void)snprintf(path, sizeof(path), "checkpoints/%s-%s%s-%ld.%" PRIu64, name, host, tag,
                   (long)pid, start);
    return scratch_path(path);
}

/* The same of the process that has the number now. */
static const char *hidden(const char *name, const char *host, pid_t pid)
{
    return hidden_since(name, host, pid, dp_process_start(pid));
}

static pid_t dead_process(void)
{
    pid_t gone = 999999;

    while (kill(gone, 0) == 0 || errno != ESRCH) {
        gone--;
    }
    return gone;
}

static void make_leftover(const char *path)
{
    char file[600];

    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(file, sizeof(file), "%s/model.safetensors", path);
    scratch_write(file, "x", 1);
}

static void leftovers_of_dead_processes_are_deleted(void **state)
{
    const pid_t gone = dead_process();
    (void)state;

    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    make_leftover(hidden(".tmp-step-00000001", "", getpid()));
    make_leftover(hidden(".tmp-step-00000001", "", gone));
    make_leftover(hidden(".tmp-step-00000001", "", getppid()));
    assert_int_equal(symlink("step-00000001", hidden(".tmp-latest", "", gone)), 0);
    assert_int_equal(symlink("step-00000001", hidden(".tmp-step-00000002", "", gone)), 0);
    scratch_write(hidden_since(".tmp-latest", "", gone, 7), "x", 1); /* neither is ours */
    assert_int_equal(save(1, 1), DP_OK);
    assert_int_equal(scratch_count("checkpoints"), 5); /* the new one, latest, and the live one */
    assert_int_equal(access(hidden(".tmp-step-00000001", "", getppid()), F_OK), 0);
}

/* In a container numbers are soon used again: the run that goes on may have those of the one that
 * was killed. */
static void a_leftover_whose_process_has_another_ones_number_is_deleted(void **state)
{
    const pid_t lives = getppid();
    const uint64_t start = dp_process_start(lives);
    (void)state;

    assert_true(start > 0);
    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    make_leftover(hidden_since(".tmp-step-00000001", "", lives, start - 1));
    make_leftover(hidden_since(".tmp-step-00000002", "", lives, start));
    make_leftover(hidden_since(".tmp-step-00000003", "", lives, 0)); /* when, is not known */
    assert_int_equal(save(1, 1), DP_OK);
    assert_int_equal(access(hidden_since(".tmp-step-00000001", "", lives, start - 1), F_OK), -1);
    assert_int_equal(access(hidden_since(".tmp-step-00000002", "", lives, start), F_OK), 0);
    assert_int_equal(access(hidden_since(".tmp-step-00000003", "", lives, 0), F_OK), 0);
}

/* Sets when a file was written. */
static void age(const char *path, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = time(NULL) - seconds},
                                      {.tv_sec = time(NULL) - seconds}};

    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A process id of another host says nothing; only the age of the file counts. */
static void leftovers_of_other_hosts_are_deleted_once_they_are_old(void **state)
{
    static const char *const names[] = {".tmp-step-00000001", ".tmp-step-00000002"};
    char file[600];
    (void)state;

    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    for (int i = 0; i < 2; i++) {
        make_leftover(hidden(names[i], "other-", dead_process()));
        (void)snprintf(file, sizeof(file), "%s/model.safetensors",
                       hidden(names[i], "other-", dead_process()));
        age(file, i == 0 ? 7200 : 60); /* the second is still being written */
        age(hidden(names[i], "other-", dead_process()), 7200);
    }
    assert_int_equal(save(3, 1), DP_OK);
    assert_int_equal(access(hidden(names[0], "other-", dead_process()), F_OK), -1);
    assert_int_equal(access(hidden(names[1], "other-", dead_process()), F_OK), 0);
}

/* Files that this program has not made stay, with any name. */
static void files_of_others_are_not_deleted(void **state)
{
    static const char *const folders[] = {"step-00000001",        ".tmp-notes",
                                          ".tmp-step-00000001-1", ".tmp-old-step-00000002-x-3",
                                          ".tmp-latest-a-0-b",    ".tmp-latest"};
    char path[128];
    (void)state;

    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    for (int i = 0; i < 6; i++) {
        (void)snprintf(path, sizeof(path), "checkpoints/%s", folders[i]);
        assert_int_equal(mkdir(scratch_path(path), 0777), 0);
        (void)snprintf(path, sizeof(path), "checkpoints/%s/thesis.txt", folders[i]);
        scratch_write(scratch_path(path), "x", 1);
    }
    for (uint64_t step = 2; step <= 4; step++) {
        assert_int_equal(save(step, 1), DP_OK);
    }
    assert_true(!exists(2) && !exists(3) && exists(4));
    for (int i = 0; i < 6; i++) {
        (void)snprintf(path, sizeof(path), "checkpoints/%s/thesis.txt", folders[i]);
        assert_int_equal(access(scratch_path(path), F_OK), 0);
    }
}

/* Deletes no checkpoint with it, and later ones are deleted nevertheless. */
static void a_foreign_file_in_a_checkpoint_is_kept(void **state)
{
    (void)state;
    assert_int_equal(save(1, 5), DP_OK);
    scratch_write(scratch_path("checkpoints/step-00000001/thesis.txt"), "x", 1);
    assert_int_equal(save(2, 5), DP_OK);
    stderr_begin();
    assert_int_equal(save(3, 1), DP_OK);
    assert_int_equal(save(4, 1), DP_OK); /* which says nothing any more */
    stderr_end();
    assert_non_null(strstr(stderr_text, "cannot delete"));
    assert_null(strstr(strstr(stderr_text, "cannot delete") + 1, "cannot delete"));
    stderr_begin();
    assert_false(dp_checkpoint_dir_remove(scratch_path("checkpoints/step-00000001")));
    stderr_end();
    assert_int_equal(scratch_count("checkpoints/step-00000001"), 1);
    assert_true(!exists(2) && !exists(3) && exists(4));

    scratch_write(scratch_path("checkpoints/step-00000004/thesis.txt"), "x", 1);
    assert_int_equal(save(4, 1), DP_OK); /* in its place */
    assert_int_equal(scratch_count("checkpoints/step-00000004"), 5);
    assert_int_equal(scratch_count("checkpoints"), 3);
    assert_int_equal(save(5, 5), DP_OK);
    assert_true(dp_checkpoint_dir_remove(scratch_path("checkpoints/step-00000005")));
}

/* The new checkpoint gets the name; the entry that had it is renamed, and none that was before. */
static void an_entry_with_a_checkpoints_name_is_renamed(void **state)
{
    (void)state;
    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    assert_int_equal(mkdir(scratch_path("checkpoints/step-00000002"), 0777), 0);
    scratch_write(scratch_path("checkpoints/step-00000002/thesis.txt"), "x", 1);
    scratch_write(scratch_path("checkpoints/step-00000003"), "y", 1);
    scratch_write(scratch_path("checkpoints/step-00000003.other-1"), "z", 1);
    stderr_begin();
    assert_int_equal(save(2, 1), DP_OK);
    assert_int_equal(save(3, 1), DP_OK);
    stderr_end();
    assert_non_null(strstr(stderr_text, "step-00000002.other-1"));
    assert_int_equal(access(scratch_path("checkpoints/step-00000002.other-1/thesis.txt"), F_OK), 0);
    assert_non_null(strstr(stderr_text, "step-00000003.other-2"));
    assert_int_equal(access(scratch_path("checkpoints/step-00000003.other-1"), F_OK), 0);
    assert_int_equal(access(scratch_path("checkpoints/step-00000003.other-2"), F_OK), 0);
    assert_true(!exists(2) && exists(3));
}

/* As if killed in the middle: MANIFEST still exists. */
static void an_interrupted_deletion_is_completed(void **state)
{
    (void)state;
    assert_int_equal(save(1, 5), DP_OK);
    assert_int_equal(unlink(scratch_path("checkpoints/step-00000001/model.safetensors")), 0);
    assert_int_equal(save(2, 1), DP_OK);
    assert_true(!exists(1) && exists(2));
}

/* As if killed between the two renames that replace a checkpoint. */
static void a_checkpoint_moved_aside_is_moved_back(void **state)
{
    static const char *const hosts[] = {"", "other-"};
    char aside[512], found[DP_PATH_BYTES];
    bool any = false;
    (void)state;

    assert_int_equal(save(1, 5), DP_OK);
    assert_int_equal(save(2, 5), DP_OK);
    for (int turn = 0; turn < 2; turn++) {
        (void)snprintf(aside, sizeof(aside), "%s",
                       hidden(".tmp-old-step-00000002", hosts[turn], getpid()));
        assert_int_equal(rename(scratch_path("checkpoints/step-00000002"), aside), 0);
        stderr_begin();
        if (turn == 0) {
            assert_int_equal(dp_checkpoint_dir_find(scratch_path("checkpoints"), found, &any),
                             DP_OK);
            assert_string_equal(strrchr(found, '/'), "/step-00000002");
        } else {
            assert_int_equal(save(3, 5), DP_OK);
        }
        stderr_end();
        assert_non_null(strstr(stderr_text, "restored"));
        assert_true(exists(2));
        assert_int_equal(access(aside, F_OK), -1);
    }
    assert_int_equal(dp_checkpoint_verify(scratch_path("checkpoints/step-00000002")), DP_OK);
}

/* Its hashes are right: it was changed together with MANIFEST. */
static void a_checkpoint_of_two_steps_is_not_whole(void **state)
{
    struct dp_json *fields = dp_json_create();
    const struct dp_checkpoint checkpoint = {
        .step = 5, .weights = &weights, .slots = &slot, .slot_count = 1, .state = fields};
    struct dp_json *kept = dp_json_set_object(fields, "kept");
    char found[DP_PATH_BYTES];
    (void)state;

    assert_int_equal(save(4, 5), DP_OK);
    assert_int_equal(save(9, 5), DP_OK); /* training went back since: the last to be taken */
    for (int64_t step = 5; step <= 6; step++) {
        assert_int_equal(dp_json_set_int(kept, "step", step), DP_OK);
        assert_int_equal(dp_checkpoint_save(scratch_path("checkpoints"), &checkpoint, 5, 0), DP_OK);
        stderr_begin();
        assert_int_equal(dp_checkpoint_dir_find(scratch_path("checkpoints"), found, NULL), DP_OK);
        stderr_end();
        assert_string_equal(strrchr(found, '/'), step == 5 ? "/step-00000005" : "/step-00000004");
    }
    assert_non_null(strstr(stderr_text, "is of step 5, but its content is of step 6"));
    assert_non_null(strstr(stderr_text, "step-00000005 is not whole; trying the one before it"));
    dp_json_destroy(fields);
}

static void other_entries_of_the_folder_are_left_alone(void **state)
{
    (void)state;
    assert_int_equal(mkdir(scratch_path("checkpoints"), 0777), 0);
    assert_int_equal(mkdir(scratch_path("checkpoints/step-best"), 0777), 0);
    assert_int_equal(mkdir(scratch_path("checkpoints/step-1"), 0777), 0);
    scratch_write(scratch_path("checkpoints/notes"), "x", 1);
    assert_int_equal(save(1, 1), DP_OK);
    assert_int_equal(save(2, 1), DP_OK);
    assert_int_equal(scratch_count("checkpoints"), 5);
    assert_true(!exists(1) && exists(2));
}

/* Neither does it wait for whoever writes to a pipe. */
static void a_folder_whose_manifest_is_no_file_is_not_ours(void **state)
{
    char manifest[DP_PATH_BYTES], moved[DP_PATH_BYTES];
    (void)state;

    assert_int_equal(save(1, 1), DP_OK);
    (void)snprintf(manifest, sizeof(manifest), "%s",
                   scratch_path("checkpoints/step-00000001/MANIFEST"));
    (void)snprintf(moved, sizeof(moved), "%s", scratch_path("MANIFEST"));
    assert_true(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")));
    assert_int_equal(rename(manifest, moved), 0);
    assert_int_equal(symlink(moved, manifest), 0);
    assert_false(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")));
    assert_int_equal(unlink(manifest), 0);
    assert_int_equal(mkfifo(manifest, 0600), 0);
    assert_false(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")));
    assert_int_equal(mkfifo(scratch_path("checkpoints/step-00000002"), 0600), 0);
    assert_false(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000002")));
}

/* Of a longer one the first 4095 bytes count. */
static void a_manifest_is_of_a_few_lines(void **state)
{
    enum { READ = 4095 };
    char manifest[DP_PATH_BYTES], ours[1024], text[READ + 1];
    size_t bytes;
    (void)state;

    assert_int_equal(save(1, 1), DP_OK);
    (void)snprintf(manifest, sizeof(manifest), "%s",
                   scratch_path("checkpoints/step-00000001/MANIFEST"));
    bytes = (size_t)scratch_read(manifest, ours, sizeof(ours));
    assert_in_range(bytes, 1, sizeof(ours) - 1);
    for (size_t more = 0; more <= 1; more++) {
        const size_t before = READ + more - bytes; /* of others */
        memset(text, 'x', before);
        text[before - 1] = '\n';
        memcpy(text + before, ours, bytes);
        scratch_write(manifest, text, before + bytes);
        assert_int_equal(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")),
                         more == 0);
    }
}

/* A link could lead to another checkpoint, which would be deleted. */
static void a_folder_is_ours_if_its_manifest_lists_all_files(void **state)
{
    char manifest[DP_PATH_BYTES], whole[1024] = "", text[1024];
    (void)state;

    assert_int_equal(save(1, 1), DP_OK);
    (void)snprintf(manifest, sizeof(manifest), "%s",
                   scratch_path("checkpoints/step-00000001/MANIFEST"));
    assert_in_range(scratch_read(manifest, whole, sizeof(whole)), 1, sizeof(whole) - 1);
    assert_int_equal(symlink("step-00000001", scratch_path("checkpoints/link")), 0);
    assert_true(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")));
    assert_false(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/link")));
    for (const char *line = whole; *line != '\0'; line = strchr(line, '\n') + 1) {
        (void)snprintf(text, sizeof(text), "%.*s%s", (int)(line - whole), whole,
                       strchr(line, '\n') + 1);
        scratch_write(manifest, text, strlen(text));
        assert_false(dp_checkpoint_dir_is_ours(scratch_path("checkpoints/step-00000001")));
    }
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(the_newest_are_kept_and_the_rest_deleted),
        WITH_FOLDER(checkpoints_after_the_resumed_one_are_kept),
        WITH_FOLDER(keep_every_keeps_checkpoints_for_good),
        WITH_FOLDER(latest_is_replaced_only_if_it_is_a_link),
        WITH_FOLDER(numbers_of_other_lengths_are_no_steps),
        WITH_FOLDER(leftovers_of_dead_processes_are_deleted),
        WITH_FOLDER(a_leftover_whose_process_has_another_ones_number_is_deleted),
        WITH_FOLDER(leftovers_of_other_hosts_are_deleted_once_they_are_old),
        WITH_FOLDER(files_of_others_are_not_deleted),
        WITH_FOLDER(a_foreign_file_in_a_checkpoint_is_kept),
        WITH_FOLDER(an_entry_with_a_checkpoints_name_is_renamed),
        WITH_FOLDER(an_interrupted_deletion_is_completed),
        WITH_FOLDER(a_checkpoint_moved_aside_is_moved_back),
        WITH_FOLDER(a_checkpoint_of_two_steps_is_not_whole),
        WITH_FOLDER(other_entries_of_the_folder_are_left_alone),
        WITH_FOLDER(a_folder_whose_manifest_is_no_file_is_not_ours),
        WITH_FOLDER(a_manifest_is_of_a_few_lines),
        WITH_FOLDER(a_folder_is_ours_if_its_manifest_lists_all_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
