/*
 * test_lockstep.c - the public interface, in one process: errors, results, and that it leaves
 * nothing. tests/runs/tools/lockstep.py has real ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "base/trace.h"
#include "tests/support/own_plugins.h"
#include "tests/support/stderr_text.h"
#include "tests/support/whole_run.h"

static struct dp_world *world;

static int join(void **state)
{
    (void)state;
    return dp_lockstep_join(&world) != DP_OK || dp_lockstep_add_source(&own_source) != DP_OK ||
           dp_lockstep_add_layer(&own_layer) != DP_OK;
}

static int leave(void **state)
{
    (void)state;
    return dp_lockstep_leave(world, DP_OK);
}

/* The training of own_plugins.h, with settings until NULL. */
static struct dp_lockstep_options asked(const char *const *sets)
{
    struct dp_lockstep_options options = {.text = own_config, .sets = sets};

    while (sets != NULL && sets[options.set_count] != NULL) {
        options.set_count++;
    }
    return options;
}

static struct dp_lockstep *begin(const struct dp_lockstep_options *options)
{
    struct dp_lockstep *training = NULL;

    assert_int_equal(dp_lockstep_create(world, options, &training), DP_OK);
    assert_non_null(training);
    return training;
}

static struct dp_lockstep_step step_on(struct dp_lockstep *training, int steps)
{
    struct dp_lockstep_step step = {.step = 0};

    for (int i = 0; i < steps; i++) {
        assert_int_equal(dp_lockstep_step(training, &step), DP_OK);
    }
    return step;
}

/* Fails with `status` and one line that holds `words`, and leaves nothing. */
static void refuses(const struct dp_lockstep_options *options, dp_status status, const char *words)
{
    struct dp_lockstep *training = NULL;
    const size_t live = dp_mem_live();
    dp_status found;

    stderr_begin();
    found = dp_lockstep_create(world, options, &training);
    stderr_end();
    if (found != status || strstr(stderr_text, words) == NULL ||
        strchr(stderr_text, '\n') != strrchr(stderr_text, '\n')) {
        fail_msg("%s, not %s with '%s': %s", dp_status_text(found), dp_status_text(status), words,
                 stderr_text);
    }
    assert_null(training);
    assert_int_equal(dp_mem_live(), live);
}

static void steps_evaluations_and_the_end_are_reported(void **state)
{
    static const char *const sets[] = {"train.steps=8", NULL};
    const struct dp_lockstep_options options = asked(sets);
    struct dp_lockstep *training = begin(&options);
    struct dp_lockstep_step step;
    double first[2], last[2];
    (void)state;

    assert_int_equal(dp_lockstep_rank(world), 0);
    assert_int_equal(dp_lockstep_ranks(world), 1);
    assert_int_equal(dp_lockstep_steps(training), 0);
    assert_false(dp_lockstep_done(training));
    assert_int_equal(dp_lockstep_evaluate(training, &first[0], &first[1]), DP_OK);
    step = step_on(training, 1);
    assert_int_equal(step.step, 1);
    assert_int_equal(step.rows, 10);
    assert_true(step.loss > 0.5 && step.loss < 5.0 && !step.skipped);
    assert_true(step.accuracy >= 0.0 && step.accuracy <= 1.0);
    assert_true(step.lr > 0.0199 && step.lr < 0.0201);
    assert_true(step.samples_per_second > 0.0);
    step = step_on(training, 6);
    assert_int_equal(step.rows, 4); /* the last batch of an epoch of 64 */
    assert_false(dp_lockstep_done(training));
    (void)step_on(training, 1);
    assert_int_equal(dp_lockstep_steps(training), 8);
    assert_true(dp_lockstep_done(training));
    for (int i = 0; i < 2; i++) { /* as often as one likes */
        assert_int_equal(dp_lockstep_evaluate(training, &last[0], &last[1]), DP_OK);
        assert_true(last[0] < first[0]);
    }
    stderr_begin();
    assert_int_equal(dp_lockstep_step(training, &step), DP_ERR_USAGE);
    stderr_end();
    assert_non_null(strstr(stderr_text, "all 8 steps are done"));
    dp_lockstep_destroy(training);
}

/* However busy the machine is: a step takes no longer than the call that does it. */
static void the_rate_of_a_step_covers_only_that_step(void **state)
{
    const struct dp_lockstep_options options = asked(NULL);
    struct dp_lockstep *training = begin(&options);
    struct dp_lockstep_step step;
    double loss, accuracy;
    (void)state;

    (void)step_on(training, 1);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 200; k++) {
            assert_int_equal(dp_lockstep_evaluate(training, &loss, &accuracy), DP_OK);
        }
        const uint64_t begin_ns = dp_now_ns();
        step = step_on(training, 1);
        const double call_s = (double)(dp_now_ns() - begin_ns) / 1e9;
        const double step_s = (double)step.rows / step.samples_per_second;
        assert_true(step_s > 0.0 && step_s <= call_s * (1.0 + 1e-9));
    }
    dp_lockstep_destroy(training);
}

static void mistakes_are_returned_as_one_line(void **state)
{
    static const struct {
        const char *set;
        dp_status status;
        const char *words;
    } mistakes[] = {
        {"train.bacth=4", DP_ERR_CONFIG, "unknown key 'bacth'"},
        {"data.source=strpies", DP_ERR_CONFIG, "did you mean 'stripes'?"},
        {"model.layers[4].gain.initail=1", DP_ERR_CONFIG, "did you mean 'initial'?"},
        {"model.layers[2].dense.units=0", DP_ERR_CONFIG, "an integer from 1"},
        {"model.layers[5].dense.units=3", DP_ERR_DATA, "do not fit a model of 16 and 3"},
        {"model.input=[5, 5, 1]", DP_ERR_DATA, "do not fit a model of 25 and 4"},
        {"train.precision=bf16", DP_ERR_UNAVAILABLE, "gain computes on the host, in fp32"},
    };
    static const char *const own_pace[] = {"train.mode=async", "train.staleness=2",
                                           "comm.servers=1", NULL};
    static const char *const evaluator[] = {"train.eval_rank=true", NULL};
    static const char *const reader[] = {"data.input_ranks=1", NULL};
    struct dp_lockstep_options options;
    (void)state;

    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        const char *const sets[] = {mistakes[i].set, NULL};
        options = asked(sets);
        refuses(&options, mistakes[i].status, mistakes[i].words);
    }
    options = asked(own_pace);
    refuses(&options, DP_ERR_CONFIG, "ddp_train can run it");
    options = asked(evaluator);
    refuses(&options, DP_ERR_CONFIG, "train.eval_rank: in a program of your own all ranks train");
    options = asked(reader);
    refuses(&options, DP_ERR_CONFIG, "data.input_ranks: in a program of your own all ranks train");
    options = (struct dp_lockstep_options){.config = scratch_path("none.cfg")};
    refuses(&options, DP_ERR_NOINPUT, "none.cfg");
    options = (struct dp_lockstep_options){.text = "model: [", .config = "mine.cfg"};
    refuses(&options, DP_ERR_CONFIG, "mine.cfg:2:1: not valid YAML");
    options = (struct dp_lockstep_options){.out = "x"};
    refuses(&options, DP_ERR_USAGE, "no configuration");
}

static void options_that_contradict_each_other_are_refused(void **state)
{
    struct dp_lockstep_options options = asked(NULL);
    (void)state;

    options.resume = "auto";
    refuses(&options, DP_ERR_USAGE, "options.out");
    options.resume = scratch_path("nothing");
    refuses(&options, DP_ERR_NOINPUT, "nothing");
    options.init = "some.safetensors";
    refuses(&options, DP_ERR_USAGE, "weights have one beginning");
    options.resume = NULL;
    refuses(&options, DP_ERR_NOINPUT, "some.safetensors");
}

static void plug_ins_need_a_new_name_and_all_functions(void **state)
{
    struct dp_source source = own_source;
    struct dp_layer_type type = own_layer;
    (void)state;

    stderr_begin();
    assert_int_equal(dp_lockstep_add_source(&own_source), DP_ERR_ARG);
    assert_int_equal(dp_lockstep_add_layer(&own_layer), DP_ERR_ARG);
    source.plugin.name = "";
    assert_int_equal(dp_lockstep_add_source(&source), DP_ERR_ARG);
    source.plugin.name = "other";
    source.load = NULL;
    assert_int_equal(dp_lockstep_add_source(&source), DP_ERR_ARG);
    type.plugin.name = "other";
    type.backward = NULL;
    assert_int_equal(dp_lockstep_add_layer(&type), DP_ERR_ARG);
    stderr_end();
    assert_non_null(strstr(stderr_text, "source 'stripes' exists already"));
    assert_non_null(strstr(stderr_text, "layer 'other' lacks a function"));
}

static void training_resumes_at_the_checkpoint(void **state)
{
    struct dp_lockstep_options options = asked(NULL);
    struct dp_lockstep *training;
    struct dp_lockstep_step step;
    char out[256];
    (void)state;

    (void)snprintf(out, sizeof(out), "%s", scratch_path("out"));
    options.out = out;
    training = begin(&options);
    (void)step_on(training, 3);
    assert_int_equal(dp_lockstep_save(training), DP_OK);
    assert_int_equal(dp_lockstep_save(training), DP_OK); /* it is there */
    step = step_on(training, 1);
    dp_lockstep_destroy(training);
    refuses(&options, DP_ERR_USAGE, "holds a run already");

    options.resume = "auto";
    training = begin(&options);
    assert_int_equal(dp_lockstep_steps(training), 3);
    assert_true(step_on(training, 1).loss == step.loss);
    dp_lockstep_destroy(training);

    options.out = NULL; /* to look at */
    options.resume = out;
    training = begin(&options);
    assert_int_equal(dp_lockstep_steps(training), 3);
    stderr_begin();
    assert_int_equal(dp_lockstep_save(training), DP_ERR_USAGE);
    stderr_end();
    assert_non_null(strstr(stderr_text, "options.out was not given"));
    dp_lockstep_destroy(training);
}

/* A failed write does not end training: there may be space later. */
static void a_checkpoint_that_cannot_be_written_can_be_tried_again(void **state)
{
    struct dp_lockstep_options options = asked(NULL);
    struct dp_lockstep *training;
    (void)state;

    options.out = scratch_path("out");
    training = begin(&options);
    (void)step_on(training, 1);
    scratch_write(scratch_path("out/checkpoints"), "x", 1);
    stderr_begin();
    assert_int_equal(dp_lockstep_save(training), DP_ERR_WRITE);
    stderr_end();
    assert_int_equal(unlink(scratch_path("out/checkpoints")), 0);
    assert_int_equal(dp_lockstep_save(training), DP_OK);
    assert_int_equal(access(scratch_path("out/checkpoints/latest/MANIFEST"), F_OK), 0);
    (void)step_on(training, 1);
    dp_lockstep_destroy(training);
}

/* A finished run can be opened, too, and evaluates to its reported results. */
static void a_run_of_ddp_train_can_be_evaluated(void **state)
{
    static const char *const sets[] = {"train.steps=6", NULL};
    struct dp_run_options run = options_of("run", 0, NULL);
    struct dp_lockstep_options options = {
        .text = whole_run_text, .sets = sets, .set_count = 1, .resume = scratch_path("run")};
    struct dp_lockstep *training;
    double loss, accuracy, expected;
    struct dp_json *json = NULL;
    char text[65536];
    long length;
    (void)state;

    run.sets[run.set_count++] = sets[0];
    assert_int_equal(whole_run(&run), DP_OK);
    length = scratch_read(scratch_path("run/run.json"), text, sizeof(text));
    assert_true(length > 0);
    assert_int_equal(dp_json_parse(text, (size_t)length, "run.json", &json), DP_OK);
    assert_true(dp_json_real(dp_json_get(dp_json_get(json, "final"), "test_loss"), &expected));
    dp_json_destroy(json);

    training = begin(&options);
    assert_int_equal(dp_lockstep_steps(training), 6);
    assert_true(dp_lockstep_done(training));
    assert_int_equal(dp_lockstep_evaluate(training, &loss, &accuracy), DP_OK);
    assert_true(fabs(loss - expected) < 1e-9); /* ten digits are written */
    dp_lockstep_destroy(training);
}

static void failing_training_is_reported(void **state)
{
    static const char *const wild[] = {"optimizer.name=sgd", "optimizer.lr=1000000", NULL};
    static const char *const idle[] = {"optimizer.lr=0", "early_stop.patience=1", NULL};
    struct dp_lockstep_options options = asked(wild);
    struct dp_lockstep *training = begin(&options);
    dp_status status = DP_OK;
    struct dp_lockstep_step step;
    double loss, accuracy;
    (void)state;

    stderr_begin();
    while (status == DP_OK && !dp_lockstep_done(training)) {
        status = dp_lockstep_step(training, &step);
    }
    stderr_end();
    assert_int_equal(status, DP_ERR_DIVERGED);
    assert_ptr_equal(strchr(stderr_text, '\n'), strrchr(stderr_text, '\n'));
    dp_lockstep_destroy(training);

    options = asked(idle);
    training = begin(&options);
    for (int i = 0; i < 2; i++) {
        assert_false(dp_lockstep_done(training));
        (void)step_on(training, 1);
        assert_int_equal(dp_lockstep_evaluate(training, &loss, &accuracy), DP_OK);
    }
    assert_true(dp_lockstep_done(training)); /* it got no better */
    dp_lockstep_destroy(training);
}

static dp_status all_of_it(const struct dp_lockstep_options *options)
{
    struct dp_lockstep *training = NULL;
    struct dp_lockstep_step step;
    double loss, accuracy;
    dp_status status;

    DP_TRY(dp_lockstep_create(world, options, &training));
    status = dp_lockstep_step(training, &step);
    status = status == DP_OK ? dp_lockstep_evaluate(training, &loss, &accuracy) : status;
    status = status == DP_OK ? dp_lockstep_save(training) : status;
    dp_lockstep_destroy(training);
    return status;
}

/* Shared memory may be released as late as when ranks leave. Choices of algorithms are left out: a
 * cache that cannot be read or kept is no error. */
static void a_failed_allocation_is_returned_and_leaves_nothing(void **state)
{
    static const char *const sets[] = {"device.tune=off", NULL};
    struct dp_lockstep_options options = asked(sets);
    dp_status status = DP_ERR_NOMEM;
    char out[256];

    assert_int_equal(leave(state), 0);
    (void)snprintf(out, sizeof(out), "%s", scratch_path("out"));
    options.out = out;
    for (int nth = 1; status != DP_OK; nth++) {
        scratch_remove(out);
        stderr_begin();
        assert_int_equal(dp_lockstep_join(&world), DP_OK);
        dp_mem_fail_nth(nth);
        status = all_of_it(&options);
        dp_mem_fail_nth(0);
        assert_int_equal(dp_lockstep_leave(world, status), dp_status_exit(status));
        stderr_end();
        if ((status != DP_OK && status != DP_ERR_NOMEM) || dp_mem_live() != 0) {
            fail_msg("allocation %d: %s, and %zu are left: %s", nth, dp_status_text(status),
                     dp_mem_live(), stderr_text);
        }
        assert_true(status != DP_OK || nth > 50);
    }
    assert_int_equal(dp_lockstep_join(&world), DP_OK);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_evaluations_and_the_end_are_reported),
        cmocka_unit_test(the_rate_of_a_step_covers_only_that_step),
        IN_SCRATCH(mistakes_are_returned_as_one_line),
        IN_SCRATCH(options_that_contradict_each_other_are_refused),
        cmocka_unit_test(plug_ins_need_a_new_name_and_all_functions),
        IN_SCRATCH(training_resumes_at_the_checkpoint),
        IN_SCRATCH(a_checkpoint_that_cannot_be_written_can_be_tried_again),
        IN_SCRATCH(a_run_of_ddp_train_can_be_evaluated),
        cmocka_unit_test(failing_training_is_reported),
        IN_SCRATCH(a_failed_allocation_is_returned_and_leaves_nothing),
    };

    return cmocka_run_group_tests_name("lockstep", tests, join, leave);
}
