/*
 * test_golden.c - steps of the real trainer against PyTorch's in float64.
 *
 * A result in float32 may be at most twice as far from the float64 one as PyTorch's own float32
 * results are (tests/golden/README.md), one in bf16 or fp16 at most twice as far as those of its
 * autocast. We set no other tolerance, except for the loss.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/config/config_load.h"
#include "tests/support/files/golden_file.h"
#include "tests/support/files/read_source.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/tested_device.h"

#define DATA_DIR "/usr/share/datasets/fashion-mnist"

enum { RANKS_MAX = 3, RESULTS_MAX = 2 };

static const char *const small[] = {
    "mlp-small-lars",          "mlp-small-lamb",
    "mlp-small-no-decay",      "mlp-small-smoothed",
    "resnet20-small-lars",     "smooth-small-sgd",
    "grouped-small-sgd",       "branched-small-sgd",
    "resnet20-small-no-decay", "mlp-small-sgd",
    "mlp-small-clipped",       "mlp-small-adamw",
    "mlp-binary-one",          "mlp-binary-labels",
    "mlp-binary-classes",      "mlp-mse-one",
    "mlp-mse-numbers",         "lenet-small-sgd",
    "lenet-small-nesterov",    "lenet-small-adamw",
    "resnet20-small-sgd",      "resnet20-small-clipped",
    "resnet20-small-adamw",
};

/* One run: what all ranks share. */
struct run {
    const struct golden *golden;
    const struct dp_config *config;
    const struct dp_model *model;
    const char *device;
    const char *precision;          /* NULL: fp32 */
    const struct dp_json *autocast; /* of this precision and result */
    struct dp_dataset data;
    char result[16]; /* "p1" */
    uint64_t steps;
    double loss[RANKS_MAX]; /* of the first step */
    struct golden_distance found[RANKS_MAX][RESULTS_MAX][GOLDEN_GROUPS];
};

/* ---- on a rank ---- */

static dp_status make_trainer(struct dp_group *group, const struct run *run,
                              struct dp_trainer **out)
{
    struct dp_trainer_config config = {
        .config = run->config,
        .model = run->model,
        .group = group,
        .data = &run->data,
        .threads = 1,
        .total_steps = run->steps,
        .schedule_steps = run->steps,
    };

    DP_TRY(dp_device_find(run->device, &config.device));
    return dp_trainer_create(&config, out);
}

/* Does all steps; measures the distances after the first and the last one. */
static size_t take_steps(struct dp_trainer *t, struct run *run, int rank)
{
    size_t wrong = golden_load(run->golden, t);

    if (run->precision != NULL) {
        wrong += !dp_json_real(dp_json_get(run->autocast, "scale"), &t->state.scaler.scale);
        wrong += dp_trainer_round(t) != DP_OK;
    }
    for (uint64_t step = 1; step <= run->steps; step++) {
        struct dp_step_report report;
        char result[48];

        if (dp_trainer_step(t, &report) != DP_OK) {
            return wrong + 1;
        }
        if (step == 1) {
            run->loss[rank] = (double)report.loss;
            wrong += golden_measure(run->golden, t, run->result, run->found[rank][0]);
            wrong += report.skipped;
            wrong += run->precision == NULL ? 0 : golden_narrow(run->autocast, run->found[rank][0]);
        } else if (step == run->steps) {
            (void)snprintf(result, sizeof(result), "%s.step%llu", run->result,
                           (unsigned long long)step);
            wrong += golden_measure(run->golden, t, result, run->found[rank][1]);
        }
    }
    return wrong;
}

static size_t run_rank(struct dp_group *group, const void *arg)
{
    struct run *run = *(struct run *const *)arg;
    struct dp_trainer *trainer = NULL;
    size_t wrong;

    if (make_trainer(group, run, &trainer) != DP_OK) {
        return 1;
    }
    wrong = dp_trainer_init(trainer) != DP_OK ? 1 : take_steps(trainer, run, group->rank);
    dp_trainer_destroy(trainer);
    return wrong;
}

/* ---- on the main thread ---- */

/* The largest ratio of the whole program, to be printed. */
static double largest;

/* A step of a residual net is discontinuous where rounding changes the sign before a relu. The
 * goldens were chosen so that float32 changes none; narrow types do, and then the error of weights
 * is random, in PyTorch, too. */
static bool is_luck(const struct run *run, const char *group)
{
    return run->precision != NULL && run->model->buffer_count > 0 && strcmp(group, "running") != 0;
}

/* Prints what was off; returns how many groups were. */
static int judge(const struct run *run, const char *title, const struct golden_distance *found)
{
    int missed = 0;

    for (int i = 0; i < GOLDEN_GROUPS && found[i].group != NULL; i++) {
        const struct golden_distance *d = &found[i];
        if (is_luck(run, d->group)) {
            continue;
        }
        largest = d->ours / d->own > largest ? d->ours / d->own : largest;
        if (!(d->ours <= 2.0 * d->own)) {
            print_error("%s %s: distance %.3e, PyTorch's own %.3e, %.2f times; worst %.3e %s, "
                        "PyTorch's %s\n",
                        title, d->group, d->ours, d->own, d->ours / d->own, d->worst,
                        d->worst_tensor, d->own_worst);
            missed++;
        }
    }
    return missed;
}

/* How far the loss may be off. Logits and their softmax are off by some 1e-6 in float32. In a
 * narrow type they are rounded, and PyTorch's own mean over the rows may be closer by chance. */
static double loss_bound(const struct run *run)
{
    double own = 0;

    if (run->precision == NULL) {
        return 1e-5;
    }
    (void)dp_json_real(dp_json_get(run->autocast, "loss"), &own);
    return 2 * own + (strcmp(run->precision, "bf16") == 0 ? 0x1p-9 : 0x1p-12);
}

/* The mean loss of the first step. */
static int judge_loss(const struct run *run, const char *title, int rank)
{
    char key[32];
    const char *note;

    (void)snprintf(key, sizeof(key), "loss.%s", run->result);
    note = dp_safetensors_note(run->golden->file, key);
    assert_non_null(note);
    if (fabs(run->loss[rank] - strtod(note, NULL)) <= loss_bound(run)) {
        return 0;
    }
    print_error("%s: loss %.9g, expected %s\n", title, run->loss[rank], note);
    return 1;
}

/* Does the golden's steps on `ranks` ranks, with the configuration of this note. Returns the number
 * of errors. */
static int check(struct run *run, const char *name, const char *note, int ranks)
{
    char precision[40];
    const char *const sets[] = {"comm.strategy=shm", "comm.bucket_mb=0.05",
                                "comm.first_bucket_mb=0.01", "comm.overlap=on", precision};
    static char *const no_environment[] = {NULL};
    const char *content = dp_safetensors_note(run->golden->file, note);
    struct dp_config *config = NULL;
    struct dp_model *model = NULL;
    char *text = NULL, title[128];
    int missed = 0;

    (void)snprintf(precision, sizeof(precision), "train.precision=%s",
                   run->precision == NULL ? "fp32" : run->precision);
    assert_non_null(content);
    assert_int_equal(dp_config_resolve_text(content, strlen(content), name, no_environment, sets,
                                            (int)(sizeof(sets) / sizeof(sets[0])), &text),
                     DP_OK);
    assert_int_equal(dp_config_parse(text, name, &config), DP_OK);
    dp_free(text);
    assert_int_equal(dp_model_create(config->model.layers, config->model.layer_count,
                                     &config->model.input, &model),
                     DP_OK);
    assert_int_equal(dp_model_set_loss(model, (enum dp_loss_kind)config->train.loss,
                                       config->train.label_smoothing),
                     DP_OK);
    model->targets = run->golden->targets;
    run->config = config;
    run->model = model;
    (void)snprintf(title, sizeof(title), "%s, %s, %s, %s, %d ranks:", name, note, run->device,
                   precision, ranks);
    memset(run->found, 0, sizeof(run->found));
    const size_t wrong = on_local_ranks(ranks, run_rank, &run);
    if (wrong != 0) {
        print_error("%s %zu things are wrong\n", title, wrong);
    }
    for (int rank = 0; rank < ranks && wrong == 0; rank++) {
        missed += judge_loss(run, title, rank);
        missed += judge(run, title, run->found[rank][0]);
        missed += judge(run, title, run->found[rank][1]);
    }
    dp_model_destroy(model);
    dp_config_destroy(config);
    return missed + (int)wrong;
}

/* PyTorch's own distances of this result, if they are needed. */
static struct dp_json *autocast;

static void find_autocast(struct run *run, const char *name)
{
    if (run->precision != NULL) {
        run->autocast = golden_autocast(autocast, name, run->result, run->precision);
        assert_non_null(run->autocast);
    }
}

/* Every configuration for which the file has results of `ranks` ranks. */
static int check_ranks(struct run *run, const char *name, int ranks)
{
    const bool normalises = dp_safetensors_note(run->golden->file, "config.sync") != NULL;
    char key[32];
    int wrong;

    (void)snprintf(run->result, sizeof(run->result), "p1");
    find_autocast(run, name);
    wrong = check(run, name, normalises ? "config.sync" : "config", ranks);
    (void)snprintf(key, sizeof(key), "loss.p%d", ranks);
    if (normalises && dp_safetensors_note(run->golden->file, key) != NULL) {
        (void)snprintf(run->result, sizeof(run->result), "p%d", ranks);
        find_autocast(run, name);
        wrong += check(run, name, "config", ranks);
    }
    return wrong;
}

static void check_small(const char *device, const char *precision)
{
    int wrong = 0;

    largest = 0.0;
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        struct golden golden;
        assert_int_equal(golden_open(small[i], &golden), DP_OK);
        for (int ranks = 1; ranks <= (precision == NULL ? RANKS_MAX : 2); ranks++) {
            if (!in_share(i + (size_t)ranks)) {
                continue;
            }
            struct run run = {.golden = &golden,
                              .device = device,
                              .precision = precision,
                              .steps = 1,
                              .data = {.train_images = golden.images,
                                       .test_images = golden.images,
                                       .train_labels = golden.labels,
                                       .test_labels = golden.labels,
                                       .train_count = golden.rows,
                                       .test_count = golden.rows,
                                       .sample_bytes = 784}};
            wrong += check_ranks(&run, small[i], ranks);
        }
        golden_close(&golden);
    }
    print_message("device %s, %s: at most %.2f times PyTorch's own distance\n", device,
                  precision == NULL ? "fp32" : precision, largest);
    assert_int_equal(wrong, 0);
}

static bool on_host(void)
{
    return strcmp(tested_device(), "cpu") == 0;
}

static void small_models_step_like_pytorch_in_float64_on_cpu(void **state)
{
    (void)state;
    check_small(tested_device(), NULL);
    assert_int_equal(dp_mem_live(), 0);
}

static void small_models_step_like_pytorch_in_float64_on_ref(void **state)
{
    (void)state;
    if (!on_host()) { /* builds without that device do the same */
        skip();
    }
    check_small("ref", NULL);
    assert_int_equal(dp_mem_live(), 0);
}

static void check_full(const char *name, uint64_t steps, const char *precision)
{
    const struct dp_source_config source = {
        .dir = DATA_DIR,
        .input = {.height = 28, .width = 28, .channels = 1, .count = 784},
        .classes = 10};
    struct golden golden;
    struct outcome o;
    int wrong = 0;

    if (access(DATA_DIR "/train-images-idx3-ubyte.gz", R_OK) != 0) {
        print_message("skipped: " DATA_DIR " is missing: apt-get install dataset-fashion-mnist\n");
        skip();
    }
    largest = 0.0;
    o = run_source("fashion-mnist", &source);
    assert_int_equal(o.loaded, DP_OK);
    assert_int_equal(golden_open(name, &golden), DP_OK);
    for (int ranks = 1; ranks <= (precision == NULL ? RANKS_MAX : 1); ranks++) {
        if (!in_share((size_t)ranks)) {
            continue;
        }
        struct run run = {.golden = &golden,
                          .device = precision == NULL ? tested_device() : "cpu",
                          .precision = precision,
                          .steps = steps,
                          .data = {.train_images = o.images[0],
                                   .test_images = o.images[1],
                                   .train_labels = o.labels[0],
                                   .test_labels = o.labels[1],
                                   .train_count = o.info.count[DP_SET_TRAIN],
                                   .test_count = o.info.count[DP_SET_TEST],
                                   .sample_bytes = 784}};
        wrong += check_ranks(&run, name, ranks);
    }
    golden_close(&golden);
    print_message("%s, %s: at most %.2f times PyTorch's own distance\n", name,
                  precision == NULL ? "fp32" : precision, largest);
    outcome_free(&o);
    assert_int_equal(wrong, 0);
}

/* Convolutions of this size take minutes on a simulated GPU. */
static void skip_if_quick(void)
{
    if (getenv("DP_TEST_QUICK") != NULL) {
        skip();
    }
}

static void mlp_does_twenty_steps_like_pytorch(void **state)
{
    (void)state;
    if (getenv("DP_HOST_CUDNN") != NULL) { /* which has no part in it */
        skip();
    }
    /* A sanitizer sees all of the code in the first one. */
    check_full("mlp", on_host() && getenv("DP_TEST_QUICK") != NULL ? 1 : 20, NULL);
}

static void lenet_does_twenty_steps_like_pytorch(void **state)
{
    (void)state;
    skip_if_quick();
    check_full("lenet", 20, NULL);
}

static void resnet20_does_a_step_like_pytorch(void **state)
{
    (void)state;
    skip_if_quick();
    check_full("resnet20", 1, NULL);
}

static void check_narrow(const char *precision)
{
    skip_if_quick();
    assert_int_equal(golden_autocast_open(&autocast), DP_OK);
    check_small("cpu", precision);
    check_small("ref", precision);
    check_full("mlp", 1, precision);
    check_full("lenet", 1, precision);
    dp_json_destroy(autocast);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_step_in_bf16_is_as_close_as_autocast(void **state)
{
    (void)state;
    check_narrow("bf16");
}

static void a_step_in_fp16_is_as_close_as_autocast(void **state)
{
    (void)state;
    check_narrow("fp16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_step_like_pytorch_in_float64_on_cpu),
        cmocka_unit_test(small_models_step_like_pytorch_in_float64_on_ref),
        cmocka_unit_test(mlp_does_twenty_steps_like_pytorch),
        cmocka_unit_test(lenet_does_twenty_steps_like_pytorch),
        cmocka_unit_test(resnet20_does_a_step_like_pytorch),
        cmocka_unit_test(a_step_in_bf16_is_as_close_as_autocast),
        cmocka_unit_test(a_step_in_fp16_is_as_close_as_autocast),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
