/* test_resume.c - an interrupted and resumed run ends with the bytes of one that never stopped. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/system/process_tag.h"
#include "tests/support/stderr_text.h"
#include "tests/support/whole_run.h"

enum { EVERY = 3, INTERRUPTED = 7, END = 10 };

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                    "MANIFEST"};

static dp_status run(const char *out, int steps, const char *resume)
{
    const struct dp_run_options options = options_of(out, steps, resume);

    return whole_run(&options);
}

/* Like run(), with messages, which go to stderr_text. */
static dp_status run_badly(const char *out, int steps, const char *resume)
{
    dp_status status;

    stderr_begin();
    status = run(out, steps, resume);
    stderr_end();
    return status;
}

/* As run(), with a setting. */
static dp_status run_set(const char *out, int steps, const char *resume, const char *set)
{
    struct dp_run_options options = options_of(out, steps, resume);

    options.sets[options.set_count++] = set;
    return whole_run(&options);
}

/* Whether two files have the same bytes. */
static bool same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t x_bytes = 0, y_bytes = 0;
    bool same;

    assert_int_equal(dp_file_read(a, 1 << 24, &x, &x_bytes), DP_OK);
    assert_int_equal(dp_file_read(b, 1 << 24, &y, &y_bytes), DP_OK);
    same = x_bytes == y_bytes && memcmp(x, y, x_bytes) == 0;
    dp_free(y);
    dp_free(x);
    return same;
}

/* Whether the checkpoints of two runs are the same from step `first` on, in all files. */
static bool same_checkpoints(const char *a, const char *b, int first)
{
    bool same = true;

    for (int step = first; step <= END; step++) {
        for (int i = 0; i < 4 && (step % EVERY == 0 || step == END); i++) {
            char x[128], y[128];
            (void)snprintf(x, sizeof(x), "%s/checkpoints/step-%08d/%s", a, step, files[i]);
            (void)snprintf(y, sizeof(y), "%s/checkpoints/step-%08d/%s", b, step, files[i]);
            same = same && same_file(scratch_path(x), scratch_path(y));
        }
    }
    return same;
}

static void interrupted_and_resumed_equals_uninterrupted(void **state)
{
    static const int stops[][2] = {{1, 8}, {4, 5}, {6, 7}};
    (void)state;

    assert_int_equal(run("whole", END, NULL), DP_OK);
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        char out[32];
        (void)snprintf(out, sizeof(out), "out-%zu", i);
        assert_int_equal(run(out, stops[i][0], NULL), DP_OK);
        assert_int_equal(run(out, stops[i][1], "auto"), DP_OK);
        assert_int_equal(run(out, END, "auto"), DP_OK);
        assert_true(same_checkpoints("whole", out, 1));
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Master weights are resumed with all their bits, and so is the loss scale. */
/* ThreadSanitizer takes a minute for the arithmetic of narrow types, and threads do what they do in
 * float32. Fewer allocations fail there, too. */
#ifdef DP_TSAN
enum { UNDER_TSAN = 1, FAILED_EVERY = 29, FAILED_LEAST = 3 };
#else
enum { UNDER_TSAN = 0, FAILED_EVERY = 11, FAILED_LEAST = 10 };
#endif

static void narrow_types_are_resumed_exactly(void **state)
{
    static const char *const precisions[] = {"train.precision=bf16", "train.precision=fp16"};
    (void)state;

    if (UNDER_TSAN) {
        skip();
    }
    for (size_t i = 0; i < 2; i++) {
        char whole[32], out[32];
        (void)snprintf(whole, sizeof(whole), "whole-%zu", i);
        (void)snprintf(out, sizeof(out), "out-%zu", i);
        assert_int_equal(run_set(whole, END, NULL, precisions[i]), DP_OK);
        assert_int_equal(run_set(out, INTERRUPTED, NULL, precisions[i]), DP_OK);
        assert_int_equal(run_set(out, END, "auto", precisions[i]), DP_OK);
        assert_true(same_checkpoints(whole, out, 1));
        stderr_begin();
        const dp_status other = run_set(out, END + 1, "auto", precisions[1 - i]);
        stderr_end();
        assert_int_equal(other, DP_ERR_CONFIG);
        assert_non_null(strstr(stderr_text, "train.precision"));
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void a_finished_run_is_not_changed(void **state)
{
    struct stat before, after;
    (void)state;

    assert_int_equal(run("out", END, NULL), DP_OK);
    assert_int_equal(stat(scratch_path("out/metrics.jsonl"), &before), 0);
    assert_int_equal(run("out", END, "auto"), DP_OK);
    assert_int_equal(run("out", END - 3, "auto"), DP_OK); /* further than that already */
    assert_int_equal(stat(scratch_path("out/metrics.jsonl"), &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    /* config.yaml, metrics.jsonl, run.json, report.html, events.out.tfevents..., checkpoints */
    assert_int_equal(scratch_count("out"), 6);
}

static void without_a_checkpoint_auto_begins_anew(void **state)
{
    (void)state;
    assert_int_equal(run("whole", END, NULL), DP_OK);
    assert_int_equal(run("out", END, "auto"), DP_OK); /* no such folder */
    assert_true(same_checkpoints("whole", "out", 1));
    scratch_remove(scratch_path("out/checkpoints"));
    assert_int_equal(run("out", END, "auto"), DP_OK); /* a run without any */
    assert_true(same_checkpoints("whole", "out", 1));
}

static void an_occupied_folder_is_refused_without_resume(void **state)
{
    char path[256];
    (void)state;

    assert_int_equal(run("out", 2, NULL), DP_OK);
    assert_int_equal(run("other", 3, NULL), DP_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("other"));
    assert_int_equal(run_badly("out", END, NULL), DP_ERR_USAGE);
    assert_int_equal(run_badly("out", END, path), DP_ERR_USAGE); /* that of another run, too */
    assert_int_equal(run("new", END, path), DP_OK);
    assert_int_equal(run("out", END, "auto"), DP_OK);
    assert_true(same_checkpoints("new", "out", 4));
}

static void a_run_that_could_not_begin_may_be_tried_again(void **state)
{
    (void)state;
    assert_int_equal(mkdir(scratch_path("out"), 0777), 0);
    assert_int_equal(symlink("/nonexistent/file", scratch_path("out/metrics.jsonl")), 0);
    assert_int_equal(run_badly("out", 2, NULL), DP_ERR_WRITE);
    assert_int_equal(scratch_count("out"), 1);
    assert_int_equal(unlink(scratch_path("out/metrics.jsonl")), 0);
    assert_int_equal(run("out", 2, NULL), DP_OK);
}

/* All these paths name the same checkpoint: itself, a link, its folder, its run. */
static void a_path_may_name_a_run_a_folder_or_a_link(void **state)
{
    static const char *const paths[] = {"first",
                                        "first/",
                                        "first/checkpoints",
                                        "first/checkpoints/latest",
                                        "first/checkpoints/step-00000007",
                                        "first/checkpoints/step-00000007/",
                                        "copy"};
    char from[256], to[256];
    (void)state;

    assert_int_equal(run("whole", END, NULL), DP_OK);
    assert_int_equal(run("first", INTERRUPTED, NULL), DP_OK);
    (void)snprintf(from, sizeof(from), "%s", scratch_path("first/checkpoints/step-00000007"));
    assert_int_equal(symlink(from, scratch_path("copy")), 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char out[32];
        (void)snprintf(out, sizeof(out), "out-%zu", i);
        (void)snprintf(to, sizeof(to), "%s", scratch_path(paths[i]));
        assert_int_equal(run(out, END, to), DP_OK);
        assert_true(same_checkpoints("whole", out, INTERRUPTED + 1));
    }
}

static void tear(const char *name)
{
    assert_int_equal(truncate(scratch_path(name), 20), 0);
}

static void a_torn_checkpoint_is_reported_and_the_previous_one_is_used(void **state)
{
    (void)state;

    assert_int_equal(run("whole", END, NULL), DP_OK);
    assert_int_equal(run("out", INTERRUPTED, NULL), DP_OK);
    tear("out/checkpoints/step-00000007/model.safetensors");
    assert_int_equal(unlink(scratch_path("out/checkpoints/step-00000006/MANIFEST")), 0);
    stderr_begin();
    assert_int_equal(run("out", END, "auto"), DP_OK);
    stderr_end();
    assert_non_null(strstr(stderr_text, "step-00000007: model.safetensors does not match"));
    assert_non_null(strstr(stderr_text, "step-00000006 is not whole; trying the one before it"));
    assert_true(same_checkpoints("whole", "out", 1));
}

/* `latest/` names the link, and a folder of a checkpoint's name counts as one, even if empty. */
static void a_slash_after_a_path_changes_nothing(void **state)
{
    char path[256];
    (void)state;

    assert_int_equal(run("out", INTERRUPTED, NULL), DP_OK);
    tear("out/checkpoints/step-00000007/MANIFEST");
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/latest/"));
    assert_int_equal(run_badly("new", END, path), DP_OK);
    assert_non_null(strstr(stderr_text, "step-00000007 is not whole; trying the one before it"));
    assert_int_equal(unlink(scratch_path("out/checkpoints/step-00000007/MANIFEST")), 0);
    assert_int_equal(unlink(scratch_path("out/checkpoints/step-00000007/state.json")), 0);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/step-00000007//"));
    assert_int_equal(run_badly("other", END, path), DP_ERR_DATA);
}

static void without_a_whole_checkpoint_nothing_begins(void **state)
{
    char path[256];
    (void)state;

    assert_int_equal(run("out", INTERRUPTED, NULL), DP_OK);
    tear("out/checkpoints/step-00000007/state.json");
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/step-00000007"));
    assert_int_equal(run_badly("new", END, path), DP_ERR_DATA); /* this one and no other */
    assert_int_equal(run_badly("new", END, scratch_path("nowhere")), DP_ERR_NOINPUT);
    assert_int_equal(run_badly("new", END, scratch_folder), DP_ERR_NOINPUT);
    tear("out/checkpoints/step-00000006/state.json");
    tear("out/checkpoints/step-00000003/state.json");
    assert_int_equal(run_badly("out", END, "auto"), DP_ERR_DATA);
    assert_int_equal(scratch_count("out/checkpoints"), 4);
}

static void without_latest_the_highest_step_is_the_newest(void **state)
{
    (void)state;
    assert_int_equal(run("whole", END, NULL), DP_OK);
    assert_int_equal(run("out", INTERRUPTED, NULL), DP_OK);
    assert_int_equal(unlink(scratch_path("out/checkpoints/latest")), 0);
    assert_int_equal(run("out", END, "auto"), DP_OK);
    assert_true(same_checkpoints("whole", "out", INTERRUPTED + 1));
    assert_int_equal(unlink(scratch_path("out/checkpoints/latest")), 0);
    assert_int_equal(symlink("step-00000099", scratch_path("out/checkpoints/latest")), 0);
    assert_int_equal(run("out", END, "auto"), DP_OK);
}

/* After going back to an earlier checkpoint, later ones of the old run are not the newest. */
static void after_going_back_the_newer_steps_are_resumed(void **state)
{
    char path[256];
    (void)state;

    assert_int_equal(run("out", 9, NULL), DP_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/step-00000003"));
    assert_int_equal(run_set("out", 5, path, "optimizer.lr=0.02"), DP_OK);
    assert_int_equal(run_set("out", END, "auto", "optimizer.lr=0.02"), DP_OK);
    assert_int_equal(run("other", 3, NULL), DP_OK);
    assert_int_equal(run_set("other", END, "auto", "optimizer.lr=0.02"), DP_OK);
    assert_true(same_checkpoints("out", "other", 4));
}

static void changes_that_make_the_state_meaningless_are_refused(void **state)
{
    static const struct {
        const char *set, *said;
    } rows[] = {
        {"optimizer.name=sgd", "optimizer.name adamw -> sgd"},
        {"train.global_batch=12", "train.global_batch 10 -> 12"},
        {"train.seed=4", "train.seed 3 -> 4"},
        {"data.shuffle=false", "data.shuffle true -> false"},
        {"data.drop_last=true", "data.drop_last false -> true"},
        {"data.samples=38", "training rows 37 -> 38"},
        {"model.layers[0].conv2d.filters=4", "holds another model: '0.weight' is [3, 2, 3, 3], the "
                                             "model's is [4, 2, 3, 3]"},
    };
    (void)state;

    assert_int_equal(run("out", INTERRUPTED, NULL), DP_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stderr_begin();
        const dp_status status = run_set("out", END, "auto", rows[i].set);
        stderr_end();
        assert_int_equal(status, DP_ERR_CONFIG);
        if (strstr(stderr_text, rows[i].said) == NULL) {
            fail_msg("%s is not in: %s", rows[i].said, stderr_text);
        }
        assert_ptr_equal(strchr(stderr_text, '\n'), strrchr(stderr_text, '\n')); /* one line */
    }
    assert_int_equal(run_set("out", END, "auto", "optimizer.lr=0.5"), DP_OK); /* may change */

    /* It has finished now, but incompatible changes are refused even if nothing is left to do. */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(run_set("out", END, "auto", rows[i].set), DP_ERR_CONFIG);
    }
}

static void metrics_continue_at_the_checkpoint(void **state)
{
    char path[256], *content = NULL;
    size_t bytes = 0;
    int steps[END + 1] = {0}, resumes = 0, starts = 0;
    (void)state;

    assert_int_equal(run("out", 9, NULL), DP_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/step-00000006"));
    assert_int_equal(run("out", END, path), DP_OK);
    assert_int_equal(dp_file_read(scratch_path("out/metrics.jsonl"), 1 << 20, &content, &bytes),
                     DP_OK);
    for (char *line = content, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct dp_json *json = NULL;
        const char *type;
        int64_t step = 0;
        assert_int_equal(dp_json_parse(line, (size_t)(end - line), "line", &json), DP_OK);
        type = dp_json_text(dp_json_get(json, "type"));
        (void)dp_json_int(dp_json_get(json, "step"), &step);
        starts += strcmp(type, "start") == 0;
        if (strcmp(type, "resume") == 0) {
            assert_int_equal(step, 6);
            assert_int_equal(steps[6] - steps[7], 1); /* after step 6, before step 7 */
            resumes++;
        } else if (strcmp(type, "step") == 0) {
            steps[step]++;
        }
        dp_json_destroy(json);
    }
    dp_free(content);
    for (int step = 1; step <= END; step++) {
        assert_int_equal(steps[step], 1);
    }
    assert_int_equal(starts, 1);
    assert_int_equal(resumes, 1);
}

/* Puts a file of the user's, which is not deleted, at a checkpoint's temporary name; or removes
 * it. */
static void obstruct(int step, bool there)
{
    char tag[DP_PROCESS_TAG_BYTES], name[256], file[300];

    dp_process_tag(tag);
    (void)snprintf(name, sizeof(name), "out/checkpoints/.tmp-step-%08d-%s", step, tag);
    (void)snprintf(file, sizeof(file), "%s/notes", name);
    if (there) {
        assert_int_equal(mkdir(scratch_path(name), 0777), 0);
        scratch_write(scratch_path(file), "x", 1);
    } else {
        scratch_remove(scratch_path(name));
    }
}

static void a_checkpoint_that_cannot_be_written_is_a_warning_until_the_end(void **state)
{
    static const int steps[] = {3, 5};
    dp_status status;
    (void)state;

    assert_int_equal(run("out", 2, NULL), DP_OK);
    for (int i = 0; i < 2; i++) {
        obstruct(steps[i], true);
    }
    stderr_begin();
    status = run("out", 5, "auto");
    stderr_end();
    assert_int_equal(status, DP_ERR_WRITE);
    assert_non_null(strstr(stderr_text, "lockstep: warning: cannot write "));
    assert_non_null(strstr(stderr_text, "there is no checkpoint of step 3; training goes on"));
    assert_non_null(strstr(stderr_text, "lockstep: error: cannot write "));
    assert_non_null(strstr(stderr_text, "choose another folder\n"));
    for (int i = 0; i < 2; i++) {
        obstruct(steps[i], false);
    }
    assert_int_equal(run("out", END, "auto"), DP_OK);
    assert_int_equal(run("whole", END, NULL), DP_OK);
    assert_true(same_checkpoints("whole", "out", 6));
}

/* After any failed allocation a resumed run ends, or continues without one of its checkpoints; the
 * resumed checkpoint is unchanged. */
static void survives_failed_allocations(void **state)
{
    int failed = 0, went_on = 0;
    char path[256];
    (void)state;

    assert_int_equal(run("whole", END, NULL), DP_OK);
    assert_int_equal(run("first", INTERRUPTED, NULL), DP_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("first"));
    for (int nth = 1; nth < 400; nth += FAILED_EVERY) {
        dp_status status;
        scratch_remove(scratch_path("out"));
        dp_mem_fail_nth(nth);
        status = run_badly("out", END, path);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
        failed += status != DP_OK;
        went_on += status == DP_OK;
    }
    assert_true(failed > FAILED_LEAST && went_on > 0);
    assert_int_equal(run("first", END, "auto"), DP_OK);
    assert_true(same_checkpoints("whole", "first", 1));
}

#define WITH_FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, scratch_create_fast, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(interrupted_and_resumed_equals_uninterrupted),
        WITH_FOLDER(narrow_types_are_resumed_exactly),
        WITH_FOLDER(a_finished_run_is_not_changed),
        WITH_FOLDER(without_a_checkpoint_auto_begins_anew),
        WITH_FOLDER(an_occupied_folder_is_refused_without_resume),
        WITH_FOLDER(a_run_that_could_not_begin_may_be_tried_again),
        WITH_FOLDER(a_path_may_name_a_run_a_folder_or_a_link),
        WITH_FOLDER(a_torn_checkpoint_is_reported_and_the_previous_one_is_used),
        WITH_FOLDER(a_slash_after_a_path_changes_nothing),
        WITH_FOLDER(without_a_whole_checkpoint_nothing_begins),
        WITH_FOLDER(without_latest_the_highest_step_is_the_newest),
        WITH_FOLDER(after_going_back_the_newer_steps_are_resumed),
        WITH_FOLDER(changes_that_make_the_state_meaningless_are_refused),
        WITH_FOLDER(metrics_continue_at_the_checkpoint),
        WITH_FOLDER(a_checkpoint_that_cannot_be_written_is_a_warning_until_the_end),
        WITH_FOLDER(survives_failed_allocations),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
