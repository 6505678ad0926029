/*
 * test_resume_rows.c - everything that a checkpoint holds is needed: a run that goes on without one
 * row of state.json, or without one tensor, is refused or ends differently.
 *
 * What is compared is what a run does and leaves: its exit and the reason for it, each step and
 * evaluation in metrics.jsonl, and the model. Not state.json and the optimizer's file, in which the
 * row itself would be missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/files/edited_checkpoint.h"
#include "tests/support/stderr_text.h"
#include "tests/support/whole_run.h"

enum { TEXT_MOST = 1 << 24, WAYS = 9, SHORT_WAYS = 8, KEYS = 5, SETS = 4, NAMES = 64 };

/* A row that the test adds to state.json, which the product does not read. */
#define UNREAD "nothing.reads.this"

/* The row that only the last way needs. */
#define LONG_ROW "loss_scale.good"

/* Going on, such that some rows matter. The first run, in whose third epoch most of them begin, was
 * evaluated after steps 4 and 8, of which the second was no improvement. The idle one, with
 * weights that happen to guess badly, learns nothing. */
struct way {
    const char *name;
    const char *from; /* the checkpoint */
    int to;           /* the last step */
    const char *sets[SETS];
};

static const struct way ways[WAYS] = {
    {"goes on", "first/checkpoints/step-00000010", 13, {NULL}},
    {"goes on after an evaluation", "first/checkpoints/step-00000008", 9, {NULL}},
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
    /* The loss scale of fp16 grows after 2000 steps in a row without an overflow. */
    {"goes on for long",
     "first/checkpoints/step-00000010",
     2006,
     {"optimizer.lr=0", "early_stop.patience=0", "train.eval_every=0",
      "failure_stop.chance_steps=0"}},
};

/* What a run did and left. */
struct end {
    dp_status status;
    uint64_t reported; /* a hash of metrics.jsonl, without times */
    char exit[640];    /* of run.json: how it ended, and why */
    uint64_t model;    /* a hash of the newest model's file */
};

/* One change of a checkpoint. */
struct edit {
    enum { NOTHING, DROP_ROW, DROP_TENSOR, ZERO_TENSOR } kind;
    int file; /* of a tensor */
    const char *name;
};

/* The names of the rows of state.json, or of the tensors of a file. */
struct names {
    char text[NAMES][80];
    int count;
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

static uint64_t reported_by(const char *out)
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

static void exit_of(const char *out, char *words, size_t size)
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

static void add_sets(struct dp_run_options *options, const char *const *sets, int count)
{
    for (int i = 0; i < count && sets[i] != NULL; i++) {
        options->sets[options->set_count++] = sets[i];
    }
}

/* Trains `way` from its checkpoint as it is. */
static struct end go(const struct way *way, const char *const sets[2])
{
    char path[256];
    struct end end = {.model = 0};
    size_t bytes;
    char *model;

    (void)snprintf(path, sizeof(path), "%s", scratch_path(way->from));
    struct dp_run_options options = options_of("out", way->to, path);
    add_sets(&options, sets, 2);
    add_sets(&options, way->sets, SETS);
    options.sets[options.set_count++] = "checkpoint.every_steps=0";
    stderr_begin();
    end.status = whole_run(&options);
    stderr_end();
    end.reported = reported_by("out");
    exit_of("out", end.exit, sizeof(end.exit));
    model = read_text("out", "checkpoints/latest/model.safetensors", &bytes);
    end.model = mix(0, model, bytes);
    dp_free(model);
    scratch_remove(scratch_path("out"));
    return end;
}

static bool same(const struct end *a, const struct end *b)
{
    return a->status == b->status && a->reported == b->reported && a->model == b->model &&
           strcmp(a->exit, b->exit) == 0;
}

/* ---- what a checkpoint holds, and what is taken out of it ---- */

static void add_name(struct names *names, const char *name)
{
    assert_true(names->count < NAMES);
    (void)snprintf(names->text[names->count++], sizeof(names->text[0]), "%s", name);
}

static void list_rows(struct names *names, const struct checkpoint_bytes *c)
{
    struct dp_json *json = read_json(c->data[STATE_FILE], c->count[STATE_FILE]);
    struct dp_json_member member = {0};

    while (dp_json_next(dp_json_get(json, "kept"), &member)) {
        add_name(names, member.key);
    }
    dp_json_destroy(json);
}

/* Tensors of one type, "F32" or "I64". */
static void list_tensors(struct names *names, const struct checkpoint_bytes *c, int file,
                         const char *type)
{
    struct dp_safetensors *tensors = NULL;

    assert_int_equal(dp_safetensors_parse(c->data[file], c->count[file], "test", &tensors), DP_OK);
    for (int i = 0; i < dp_safetensors_count(tensors); i++) {
        const struct dp_stored *tensor = dp_safetensors_at(tensors, i);
        if (strcmp(tensor->type, type) == 0) {
            add_name(names, tensor->name);
        }
    }
    dp_safetensors_close(tensors);
}

/* Batch norm's counters are the only values in two files: without the row of state.json they are
 * those of the model file. So both go. */
static void zero_counters(struct checkpoint_bytes *c)
{
    struct names counters = {.count = 0};

    list_tensors(&counters, c, MODEL_FILE, "I64");
    assert_true(counters.count > 0);
    for (int i = 0; i < counters.count; i++) {
        checkpoint_zero_tensor(c, MODEL_FILE, counters.text[i]);
    }
}

static void apply(const struct edit *edit, struct checkpoint_bytes *c)
{
    if (edit->kind == DROP_ROW) {
        checkpoint_drop_row(c, edit->name);
        if (strcmp(edit->name, "batches_tracked") == 0) {
            zero_counters(c);
        }
    } else if (edit->kind == DROP_TENSOR) {
        checkpoint_drop_tensor(c, edit->file, edit->name);
    } else if (edit->kind == ZERO_TENSOR) {
        checkpoint_zero_tensor(c, edit->file, edit->name);
    }
}

/* Trains `way` from its checkpoint after an edit, which is undone afterwards. */
static struct end go_edited(const struct way *way, const char *const sets[2],
                            const struct edit *edit)
{
    struct checkpoint_bytes original, edited;
    char folder[256];
    struct end end;

    (void)snprintf(folder, sizeof(folder), "%s", scratch_path(way->from));
    checkpoint_read(folder, &original);
    checkpoint_read(folder, &edited);
    apply(edit, &edited);
    checkpoint_write(folder, &edited);
    end = go(way, sets);
    checkpoint_write(folder, &original);
    checkpoint_release(&edited);
    checkpoint_release(&original);
    return end;
}

/* ---- the checks ---- */

/* A run of 10 steps, to go on from. */
static void begin(const char *out, const char *const sets[2], const char *const more[SETS])
{
    struct dp_run_options options = options_of(out, 10, NULL);

    add_sets(&options, sets, 2);
    add_sets(&options, more, SETS);
    options.sets[options.set_count++] = "checkpoint.every_steps=2";
    stderr_begin(); /* skipped steps are reported */
    assert_int_equal(whole_run(&options), DP_OK);
    stderr_end();
}

/* Adds the row that nothing reads to a checkpoint that does not have it. */
static void add_unread_row(const char *from)
{
    struct checkpoint_bytes c;
    char folder[256];

    (void)snprintf(folder, sizeof(folder), "%s", scratch_path(from));
    checkpoint_read(folder, &c);
    if (strstr(c.data[STATE_FILE], UNREAD) == NULL) {
        checkpoint_add_row(&c, UNREAD);
        checkpoint_write(folder, &c);
    }
    checkpoint_release(&c);
}

/* The name of the first way that an edit makes a difference to, or NULL. */
static const char *difference(const struct end *whole, int count, const char *const sets[2],
                              const struct edit *edit)
{
    for (int i = 0; i < count; i++) {
        const struct end end = go_edited(&ways[i], sets, edit);
        if (!same(&end, &whole[i])) {
            /* A refusal is because of this edit. */
            assert_true((end.status != DP_ERR_DATA && end.status != DP_ERR_CONFIG) ||
                        strstr(stderr_text, edit->name) != NULL);
            return ways[i].name;
        }
    }
    return NULL;
}

/* Whether the checkpoint is refused, since the tensor is missing. */
static bool is_refused(const char *const sets[2], const struct edit *edit)
{
    const struct end end = go_edited(&ways[0], sets, edit);
    char words[128];

    (void)snprintf(words, sizeof(words), "'%s' is missing", edit->name);
    return end.status == DP_ERR_CONFIG && strstr(stderr_text, words) != NULL;
}

/* A sanitizer looks at the code, which is the same for every row and step: it is given each fourth
 * row, and not the last way. */
static bool quick(void)
{
    return getenv("DP_TEST_QUICK") != NULL;
}

static int stride(void)
{
    return quick() ? 4 : 1;
}

static void check_rows(const struct end *whole, int count, const char *const sets[2],
                       const struct names *rows)
{
    for (int i = 0; i < rows->count; i += stride()) {
        const struct edit edit = {DROP_ROW, STATE_FILE, rows->text[i]};
        const bool unread = strcmp(edit.name, UNREAD) == 0;
        if (count < WAYS && strcmp(edit.name, LONG_ROW) == 0) {
            continue;
        }
        if ((difference(whole, count, sets, &edit) == NULL) != unread) {
            fail_msg("%s: the row '%s' can be dropped: %s", sets[0], edit.name,
                     unread ? "expected, but a difference was found" : "nothing is different");
        }
    }
}

static void check_tensors(const struct end *whole, const char *const sets[2], int file,
                          const struct names *tensors)
{
    for (int i = 0; i < tensors->count; i += stride()) {
        const struct edit drop = {DROP_TENSOR, file, tensors->text[i]};
        const struct edit zero = {ZERO_TENSOR, file, tensors->text[i]};
        if (!is_refused(sets, &drop)) {
            fail_msg("%s: a run goes on without '%s'", sets[0], drop.name);
        }
        if (difference(whole, 1, sets, &zero) == NULL) {
            fail_msg("%s: '%s' can be zeros, and nothing is different", sets[0], zero.name);
        }
    }
}

/* Runs that go on from whole checkpoints. That those are written again, with a row that nothing
 * reads, makes no difference. */
static void find_ends(struct end *whole, int count, const char *const sets[2])
{
    static const struct edit nothing = {.kind = NOTHING};

    for (int i = 0; i < count; i++) {
        whole[i] = go(&ways[i], sets);
    }
    for (int i = 0; i < count; i++) {
        add_unread_row(ways[i].from);
    }
    for (int i = 0; i < SHORT_WAYS; i++) {
        const struct end again = go_edited(&ways[i], sets, &nothing);
        assert_true(same(&again, &whole[i]));
    }
}

/* Takes out each row and each tensor in turn; expects more than `row_count` rows. */
static void take_out_each(const char *const sets[2], int count, int row_count)
{
    struct names rows = {.count = 0}, model = {.count = 0}, optimizer = {.count = 0};
    struct checkpoint_bytes c;
    struct end whole[WAYS];

    begin("first", sets, (const char *const[SETS]){NULL});
    begin("idle", sets, (const char *const[SETS]){"optimizer.lr=0", "train.seed=5"});
    find_ends(whole, count, sets);
    checkpoint_read(scratch_path(ways[0].from), &c);
    list_rows(&rows, &c);
    list_tensors(&model, &c, MODEL_FILE, "F32");
    list_tensors(&optimizer, &c, OPTIMIZER_FILE, "F32");
    checkpoint_release(&c);
    assert_true(rows.count > row_count);
    assert_int_equal(model.count, 8);      /* 6 parameters, 2 running statistics */
    assert_int_equal(optimizer.count, 12); /* exp_avg and exp_avg_sq of each parameter */
    check_rows(whole, count, sets, &rows);
    check_tensors(whole, sets, MODEL_FILE, &model);
    check_tensors(whole, sets, OPTIMIZER_FILE, &optimizer);
    assert_int_equal(dp_mem_live(), 0);
}

static void every_row_and_tensor_of_a_checkpoint_matters(void **state)
{
    static const char *const sets[2] = {"train.precision=fp32", NULL};
    (void)state;

    take_out_each(sets, SHORT_WAYS, 17);
}

/* Batch norm makes the gradient of a small input large, so that the first steps overflow. */
static void every_row_and_tensor_of_an_fp16_checkpoint_matters(void **state)
{
    static const char *const sets[2] = {"train.precision=fp16",
                                        "data.normalize={mean: [0, 0], std: [100, 100]}"};
    (void)state;

    take_out_each(sets, quick() ? SHORT_WAYS : WAYS, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_row_and_tensor_of_a_checkpoint_matters,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(every_row_and_tensor_of_an_fp16_checkpoint_matters,
                                        scratch_create_fast, scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
