/*
 * test_resume_rows.c - every row of what a checkpoint keeps is needed: a run that goes on without
 * it comes to something else.
 *
 * What is compared is what a run does and leaves behind: how it ends and why, each step and
 * evaluation that metrics.jsonl tells of, and the model. Not state.json and the optimizer's file,
 * in which the row itself would stand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/stderr_text.h"
#include "tests/support/whole_run.h"

enum { TEXT_MOST = 1 << 24, WAYS = 9, SHORT_WAYS = 8, KEYS = 5, SETS = 4 };

/* Going on, such that some rows matter. The first run, in whose third epoch most of them begin, was
 * evaluated behind steps 4 and 8, of which the second was no improvement. The idle one, with
 * weights that happen to guess badly, learns nothing. */
struct way {
    const char *name;
    const char *from; /* the checkpoint */
    int to;           /* the last step */
    const char *sets[SETS];
};

static const struct way ways[WAYS] = {
    {"goes on", "first/checkpoints/step-00000010", 13, {NULL}},
    {"goes on behind an evaluation", "first/checkpoints/step-00000008", 9, {NULL}},
    {"has no patience left", "first/checkpoints/step-00000010", 13, {"early_stop.patience=1"}},
    {"has patience for one more", "first/checkpoints/step-00000010", 14, {"early_stop.patience=2"}},
    {"looks for any improvement",
     "first/checkpoints/step-00000010",
     14,
     {"early_stop.patience=2", "early_stop.min_delta=0"}},
    {"allows no spikes",
     "first/checkpoints/step-00000010",
     16,
     {"failure_stop.spike_sigma=0.01", "failure_stop.spike_window=3"}},
    {"allows small spikes",
     "first/checkpoints/step-00000010",
     16,
     {"failure_stop.spike_sigma=4", "failure_stop.spike_window=3", "optimizer.lr=1"}},
    {"has learned nothing",
     "idle/checkpoints/step-00000010",
     15,
     {"optimizer.lr=0", "train.seed=5"}},
    /* The loss scale of fp16 grows behind 2000 steps in a row without an overflow. */
    {"goes on for long",
     "first/checkpoints/step-00000010",
     2006,
     {"optimizer.lr=0", "early_stop.patience=0", "train.eval_every=0",
      "failure_stop.chance_steps=0"}},
};

/* What a run came to. */
struct end {
    dp_status status;
    uint64_t told;   /* a hash of what it told on its way, times left out */
    char words[640]; /* of run.json: how it ended, and why */
    uint64_t model;  /* a hash of the newest model's file */
};

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3;
    }
    return hash;
}

static struct dp_json *read_json(const char *text, size_t bytes)
{
    struct dp_json *json = NULL;

    assert_int_equal(dp_json_parse(text, bytes, "test", &json), DP_OK);
    return json;
}

/* "" where there is no such file. */
static char *read_text(const char *out, const char *name, size_t *bytes)
{
    char path[128], *text = NULL;

    (void)snprintf(path, sizeof(path), "%s/%s", out, name);
    *bytes = 0;
    if (access(scratch_path(path), F_OK) == 0) {
        assert_int_equal(dp_file_read(scratch_path(path), TEXT_MOST, &text, bytes), DP_OK);
    }
    return text;
}

/* Of a step or an evaluation all but how long it took. */
static uint64_t mix_line(uint64_t hash, const struct dp_json *line)
{
    static const char *const times[4] = {"time", "samples_per_second", "step_ms", "seconds"};
    struct dp_json_member member = {0};

    while (dp_json_next(line, &member)) {
        bool is_time = false;
        char *value = NULL;
        for (int i = 0; i < 4; i++) {
            is_time = is_time || strcmp(member.key, times[i]) == 0;
        }
        if (!is_time) {
            assert_int_equal(dp_json_dump(member.value, 0, DP_JSON_EXACT, &value), DP_OK);
            hash = mix(mix(hash, member.key, strlen(member.key)), value, strlen(value));
            dp_free(value);
        }
    }
    return hash;
}

static uint64_t told_by(const char *out)
{
    uint64_t hash = 0;
    size_t bytes;
    char *text = read_text(out, "metrics.jsonl", &bytes);

    for (char *line = text, *end; line != NULL && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        struct dp_json *json = read_json(line, (size_t)(end - line));
        const char *type = dp_json_text(dp_json_get(json, "type"));
        if (strcmp(type, "step") == 0 || strcmp(type, "eval") == 0) {
            hash = mix_line(hash, json);
        }
        dp_json_destroy(json);
    }
    dp_free(text);
    return hash;
}

static void words_of(const char *out, char *words, size_t size)
{
    static const char *const keys[KEYS] = {"exit", "reason", "steps", "skipped_steps", "final"};
    size_t bytes, used = 0;
    char *text = read_text(out, "run.json", &bytes);
    struct dp_json *json = text != NULL ? read_json(text, bytes) : NULL;

    words[0] = '\0';
    for (int i = 0; json != NULL && i < KEYS; i++) {
        char *value = NULL;
        assert_int_equal(dp_json_dump(dp_json_get(json, keys[i]), 0, DP_JSON_EXACT, &value), DP_OK);
        used += (size_t)snprintf(words + used, size - used, "%s %s; ", keys[i], value);
        assert_true(used < size);
        dp_free(value);
    }
    dp_json_destroy(json);
    dp_free(text);
}

static void add_sets(struct dp_cli *cli, const char *const *sets, int count)
{
    for (int i = 0; i < count && sets[i] != NULL; i++) {
        cli->sets[cli->set_count++] = sets[i];
    }
}

/* Trains `way` without row number `forget`, counted from 1; 0: with all of them. */
static struct end go(const struct way *way, const char *const sets[2], int forget)
{
    char path[256];
    struct end end = {.model = 0};
    size_t bytes;
    char *model;

    (void)snprintf(path, sizeof(path), "%s", scratch_path(way->from));
    struct dp_cli cli = cli_of("out", way->to, path);
    add_sets(&cli, sets, 2);
    add_sets(&cli, way->sets, SETS);
    cli.sets[cli.set_count++] = "checkpoint.every_steps=0";
    cli.forget = forget;
    stderr_begin();
    end.status = run_cli(&cli);
    stderr_end();
    end.told = told_by("out");
    words_of("out", end.words, sizeof(end.words));
    model = read_text("out", "checkpoints/latest/model.safetensors", &bytes);
    end.model = mix(0, model, bytes);
    dp_free(model);
    scratch_remove(scratch_path("out"));
    return end;
}

static bool same(const struct end *a, const struct end *b)
{
    return a->status == b->status && a->told == b->told && a->model == b->model &&
           strcmp(a->words, b->words) == 0;
}

/* A run of 10 steps, to go on from. */
static void begin(const char *out, const char *const sets[2], const char *const more[SETS])
{
    struct dp_cli cli = cli_of(out, 10, NULL);

    add_sets(&cli, sets, 2);
    add_sets(&cli, more, SETS);
    cli.sets[cli.set_count++] = "checkpoint.every_steps=2";
    stderr_begin(); /* skipped steps are told */
    assert_int_equal(run_cli(&cli), DP_OK);
    stderr_end();
}

/* The name of the first way that comes to something else without the row, or NULL; "" behind the
 * last row. */
static const char *difference(const struct end *whole, int count, const char *const sets[2],
                              int row)
{
    for (int i = 0; i < count; i++) {
        const struct end end = go(&ways[i], sets, row);
        if (end.status == DP_ERR_USAGE) {
            assert_non_null(strstr(stderr_text, "there is no row"));
            return "";
        }
        if (!same(&end, &whole[i])) {
            return ways[i].name;
        }
    }
    return NULL;
}

/* Leaves out one row after the other; returns how many there are. */
static int drop_each(const char *const sets[2], int count)
{
    struct end whole[WAYS];
    const char *by = NULL;
    int row = 0;

    begin("first", sets, (const char *const[SETS]){NULL});
    begin("idle", sets, (const char *const[SETS]){"optimizer.lr=0", "train.seed=5"});
    for (int i = 0; i < count; i++) {
        const struct end again = go(&ways[i < SHORT_WAYS ? i : 0], sets, 0);
        whole[i] = go(&ways[i], sets, 0);
        /* Rows alone make the differences. */
        assert_true(i >= SHORT_WAYS || same(&again, &whole[i]));
    }
    do {
        by = difference(whole, count, sets, ++row);
        if (by == NULL) {
            fail_msg("%s: row %d of what is kept can be dropped, and nothing is different", sets[0],
                     row);
        }
    } while (by[0] != '\0');
    return row - 1;
}

static void every_row_that_is_dropped_makes_a_difference(void **state)
{
    static const char *const sets[2] = {"train.precision=fp32", NULL};
    (void)state;

    assert_true(drop_each(sets, SHORT_WAYS) > 20);
    assert_int_equal(dp_mem_live(), 0);
}

/* Batch norm makes the gradient of a small input large, so that the first steps overflow. */
static void so_does_every_row_of_a_loss_that_is_scaled(void **state)
{
    static const char *const sets[2] = {"train.precision=fp16",
                                        "data.normalize={mean: [0, 0], std: [100, 100]}"};
    (void)state;

    assert_true(drop_each(sets, WAYS) > 23);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_row_that_is_dropped_makes_a_difference,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(so_does_every_row_of_a_loss_that_is_scaled,
                                        scratch_create_fast, scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
