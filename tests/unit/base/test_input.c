/* test_input.c - pipes, devices, folders and links in place of files. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/cache.h"
#include "base/files/file.h"
#include "base/files/folder.h"
#include "base/files/input.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/formats/idx.h"
#include "tests/support/scratch.h"

/* A plain open() of one of them would never return. */
static void pipes_and_devices_are_refused_as_files(void **state)
{
    const char *const paths[] = {scratch_path("pipe"), scratch_folder, "/dev/null"};
    static const char *const names[] = {"pipe"};
    struct dp_safetensors *file = NULL;
    struct dp_idx *idx = NULL;
    char *text = NULL;
    size_t bytes;
    int fd;
    (void)state;

    assert_int_equal(mkfifo(paths[0], 0600), 0);
    scratch_write(scratch_path("MANIFEST"), "00000000000000000000000000000000  pipe\n", 39);
    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        assert_int_equal(dp_file_open(paths[i], &fd, &bytes), DP_ERR_DATA);
        assert_int_equal(dp_file_read(paths[i], 100, &text, &bytes), DP_ERR_DATA);
        assert_int_equal(dp_safetensors_open(paths[i], &file), DP_ERR_DATA);
        assert_int_equal(dp_idx_create(paths[i], &idx), DP_ERR_DATA);
    }
    assert_int_equal(dp_manifest_verify(scratch_folder, names, 1), DP_ERR_DATA);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

static void *write_in_two_pieces(void *path)
{
    const int fd = open(path, O_WRONLY); /* which waits for the reader */
    static const char text[] = "name: a\ntrain: {}\n";

    if (fd < 0 || write(fd, text, 5) != 5 || write(fd, text + 5, strlen(text + 5)) < 0) {
        return path;
    }
    (void)close(fd);
    return NULL;
}

static void a_configuration_may_come_through_a_pipe(void **state)
{
    char path[512], text[64];
    pthread_t writer;
    size_t bytes = 0;
    void *failed;
    (void)state;

    (void)snprintf(path, sizeof(path), "%s", scratch_path("pipe"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_in_two_pieces, path), 0);
    assert_int_equal(dp_input_read(path, text, sizeof(text), &bytes), DP_OK);
    assert_int_equal(pthread_join(writer, &failed), 0);
    assert_null(failed);
    assert_int_equal(bytes, strlen("name: a\ntrain: {}\n"));
    assert_memory_equal(text, "name: a\ntrain: {}\n", bytes);
}

/* Like the shell's <(command): the writer has ended before the pipe is opened. */
static void output_of_an_ended_command_is_read(void **state)
{
    char path[64], text[4];
    size_t bytes = 0;
    int ends[2];
    (void)state;

    for (int written = 0; written <= 6; written += 3) {
        assert_int_equal(pipe(ends), 0);
        (void)snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
        assert_int_equal(write(ends[1], "abcdef", (size_t)written), written);
        (void)close(ends[1]);
        assert_int_equal(dp_input_read(path, text, sizeof(text), &bytes), DP_OK);
        assert_int_equal(bytes, written < 4 ? written : 4);
        assert_memory_equal(text, "abcd", bytes);
        (void)close(ends[0]);
    }
    assert_int_equal(dp_input_read("/dev/null", text, sizeof(text), &bytes), DP_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(dp_input_read("/dev/zero", text, sizeof(text), &bytes), DP_OK);
    assert_int_equal(bytes, sizeof(text));
}

static void a_pipe_without_a_writer_is_refused(void **state)
{
    char text[4];
    size_t bytes = 0;
    (void)state;

    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_input_read(scratch_path("pipe"), text, sizeof(text), &bytes),
                     DP_ERR_NOINPUT);
    assert_int_equal(dp_input_read(scratch_folder, text, sizeof(text), &bytes), DP_ERR_NOINPUT);
    assert_int_equal(dp_input_read(scratch_path("none"), text, sizeof(text), &bytes),
                     DP_ERR_NOINPUT);
    dp_log_set_level(DP_LOG_INFO);
}

/* Longer than what is read at once, by a rank that the others wait for: it is no hang. */
static void reading_a_long_file_is_progress(void **state)
{
    enum { BYTES = 40 << 20 };
    struct dp_trace_mark mark = {.open = 0};
    char *content = NULL;
    size_t bytes = 0;
    (void)state;

    scratch_write(scratch_path("long"), "long", 4);
    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    assert_int_equal(dp_file_read(scratch_path("long"), BYTES, &content, &bytes), DP_OK);
    dp_free(content);
    assert_int_equal(atomic_load(&mark.beats), 0); /* what loaders read beside steps is as short */
    assert_int_equal(truncate(scratch_path("long"), BYTES), 0);
    assert_int_equal(dp_file_read(scratch_path("long"), BYTES, &content, &bytes), DP_OK);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(content, "long\0", 6);
    dp_free(content);
    assert_in_range(atomic_load(&mark.beats), 3, 100);
}

/* The temporary name of a file is a link to another file. */
static void replacing_a_file_changes_no_other_file(void **state)
{
    char name[128], text[16];
    (void)state;

    scratch_write(scratch_path("precious"), "precious", 8);
    for (int i = -1; i < 3; i++) {
        (void)snprintf(name, sizeof(name), i < 0 ? "run.json.tmp-%ld" : "run.json.tmp-%ld-%d",
                       (long)getpid(), i);
        assert_int_equal(symlink(scratch_path("precious"), scratch_path(name)), 0);
    }
    assert_int_equal(dp_file_replace(scratch_path("run.json"), "new", 3), DP_OK);
    assert_int_equal(scratch_read(scratch_path("precious"), text, sizeof(text)), 8);
    assert_string_equal(text, "precious");
    assert_int_equal(scratch_read(scratch_path("run.json"), text, sizeof(text)), 3);
    assert_string_equal(text, "new");
    assert_int_equal(scratch_count("."), 2 + 4);
}

/* Makes a file of that name, written so many seconds ago. */
static void leave(const char *name, long seconds)
{
    const struct timespec times[] = {{.tv_sec = time(NULL) - seconds},
                                     {.tv_sec = time(NULL) - seconds}};

    scratch_write(scratch_path(name), "left", 4);
    assert_int_equal(utimensat(AT_FDCWD, scratch_path(name), times, 0), 0);
}

/* Of a process with the number of this one, but which was before it, too: as in a container. */
static void what_processes_left_that_have_ended_is_deleted(void **state)
{
    static const char *const names[] = {"run.json", "report.html"};
    char mine[64], older[64];
    (void)state;

    (void)snprintf(mine, sizeof(mine), "run.json.tmp-%ld-0", (long)getpid());
    (void)snprintf(older, sizeof(older), "report.html.tmp-%ld-1", (long)getpid());
    leave(mine, 0);
    leave(older, 3600);
    leave("run.json.tmp-999999999-0", 0);
    leave("run.json.tmp-999999999", 3600); /* not such a name */
    leave("other.tmp-999999999-0", 3600);
    dp_folder_clean(scratch_folder, names, 2);
    assert_int_equal(access(scratch_path(mine), F_OK), 0);
    assert_int_not_equal(access(scratch_path(older), F_OK), 0);
    assert_int_not_equal(access(scratch_path("run.json.tmp-999999999-0"), F_OK), 0);
    assert_int_equal(scratch_count("."), 3);
}

/* Of any file in the cache's folder; what was written just now may be of another host. */
static void what_was_left_in_the_cache_is_deleted(void **state)
{
    char path[DP_PATH_BYTES], mine[64];
    (void)state;

    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_folder, 1), 0);
    assert_true(dp_cache_path(path, "choices.json"));
    dp_cache_keep(path, "{}");
    (void)snprintf(mine, sizeof(mine), "lockstep/limits.json.tmp-%ld-0", (long)getpid());
    leave(mine, 0);
    leave("lockstep/limits.json.tmp-999999999-0", 3600);
    leave("lockstep/plan-1.json.tmp-1-3", 2L * 24 * 3600); /* whoever that was */
    leave("lockstep/choices.json.tmp-999999998-0", 5);
    leave("lockstep/choices.json.tmp-999999999-x", 3600); /* not such a name */
    leave("lockstep/limits.json", 7200);
    assert_int_equal(scratch_count("lockstep"), 7);
    dp_cache_keep(path, "{1}");
    assert_int_equal(scratch_count("lockstep"), 5);
    assert_int_equal(access(scratch_path(mine), F_OK), 0);
    assert_int_equal(access(scratch_path("lockstep/choices.json.tmp-999999998-0"), F_OK), 0);
    assert_int_equal(access(scratch_path("lockstep/choices.json.tmp-999999999-x"), F_OK), 0);
    assert_int_equal(access(scratch_path("lockstep/limits.json"), F_OK), 0);
    assert_int_equal(access(scratch_path("lockstep/choices.json"), F_OK), 0);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(pipes_and_devices_are_refused_as_files),
        WITH_FOLDER(a_configuration_may_come_through_a_pipe),
        WITH_FOLDER(output_of_an_ended_command_is_read),
        WITH_FOLDER(a_pipe_without_a_writer_is_refused),
        WITH_FOLDER(reading_a_long_file_is_progress),
        WITH_FOLDER(replacing_a_file_changes_no_other_file),
        WITH_FOLDER(what_processes_left_that_have_ended_is_deleted),
        WITH_FOLDER(what_was_left_in_the_cache_is_deleted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
