#include "tests/support/small_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/config/config_load.h"
#include "tests/support/local_world.h"
#include "tests/support/tested_device.h"

enum { HEIGHT = 6, WIDTH = 6, CHANNELS = 2, PIXELS = HEIGHT * WIDTH * CHANNELS, CLASSES = 5 };

const char small_dense[] = "[flatten: {}, dense: {units: 24}, relu: {}, dense: {units: 16}, "
                           "gelu: {}, dense: {units: 5}]";
const char small_dropout[] = "[flatten: {}, dense: {units: 24}, relu: {}, dropout: {rate: 0.3}, "
                             "dense: {units: 16}, dropout: {}, dense: {units: 5}]";
const char small_conv[] =
    "[conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}, batchnorm: {sync: true}, relu: {}, "
    "maxpool: {size: 2}, "
    "residual: {body: [conv2d: {filters: 4, kernel: 3, padding: 1}, batchnorm: {sync: true}]}, "
    "relu: {}, flatten: {}, dense: {units: 5}]";
const char small_own_norm[] = "[conv2d: {filters: 4, kernel: 3}, batchnorm: {}, relu: {}, "
                              "avgpool: {size: 2}, flatten: {}, dense: {units: 5}]";

/* A bright square on noise: its place is the label, so that there is something to learn. */
static void make_row(uint8_t *image, int32_t *label, size_t row)
{
    const uint32_t bits = dp_random_u32(9, DP_RANDOM_TEST, 1, row);

    *label = (int32_t)(bits % CLASSES);
    for (size_t i = 0; i < PIXELS; i++) {
        const size_t column = i / CHANNELS % WIDTH;
        const uint32_t noise = dp_random_u32(9, DP_RANDOM_TEST, 2, row * PIXELS + i);
        image[i] = (uint8_t)(noise % 128 + (column == (size_t)*label ? 100 : 0));
    }
}

static int make_data(struct small_run *run)
{
    run->bytes = dp_zalloc(SMALL_TRAIN + SMALL_TEST, PIXELS);
    run->labels = dp_zalloc(SMALL_TRAIN + SMALL_TEST, sizeof(*run->labels));
    if (run->bytes == NULL || run->labels == NULL) {
        return 1;
    }
    for (size_t row = 0; row < SMALL_TRAIN + SMALL_TEST; row++) {
        make_row(run->bytes + row * PIXELS, &run->labels[row], row);
    }
    run->data = (struct dp_dataset){.train_images = run->bytes,
                                    .test_images = run->bytes + (size_t)SMALL_TRAIN * PIXELS,
                                    .train_labels = run->labels,
                                    .test_labels = run->labels + SMALL_TRAIN,
                                    .train_count = SMALL_TRAIN,
                                    .test_count = SMALL_TEST,
                                    .sample_bytes = PIXELS};
    return 0;
}

static dp_status make_config(struct small_run *run, const char *layers, const char *const *sets)
{
    static char *const no_environment[] = {NULL};
    const char *device = tested_device_or("ref");
    char content[2000], *text = NULL;
    dp_status status;
    int count = 0;

    (void)snprintf(content, sizeof(content),
                   "data: {source: synthetic, normalize: {mean: [0.4], std: [0.25]}}\n"
                   "train: {global_batch: 32, steps: 40, seed: 3}\n"
                   "optimizer: {lr: 0.05, momentum: 0.9}\n"
                   "comm: {strategy: shm, overlap: off, bucket_mb: 0.004, first_bucket_mb: 0.004}\n"
                   "device: {name: %s}\n"
                   "model:\n  input: [%d, %d, %d]\n  layers: %s\n",
                   device, HEIGHT, WIDTH, CHANNELS, layers);
    while (sets != NULL && sets[count] != NULL) {
        count++;
    }
    DP_TRY(dp_config_resolve_text(content, strlen(content), "small.cfg", no_environment, sets,
                                  count, &text));
    status = dp_config_parse(text, "small.cfg", &run->config);
    dp_free(text);
    return status;
}

int small_run_create(struct small_run *run, const char *layers, const char *const *sets)
{
    memset(run, 0, sizeof(*run));
    run->threads = 1;
    if (make_config(run, layers, sets) != DP_OK || make_data(run) != 0 ||
        dp_device_find(run->config->device.name, &run->device) != DP_OK ||
        dp_model_create(run->config->model.layers, run->config->model.layer_count,
                        &run->config->model.input, &run->model) != DP_OK ||
        dp_model_set_loss(run->model, (enum dp_loss_kind)run->config->train.loss,
                          run->config->train.label_smoothing) != DP_OK) {
        small_run_destroy(run);
        return 1;
    }
    return 0;
}

void small_run_destroy(struct small_run *run)
{
    dp_model_destroy(run->model);
    dp_free(run->labels);
    dp_free(run->bytes);
    dp_config_destroy(run->config);
    memset(run, 0, sizeof(*run));
}

dp_status small_run_trainer(const struct small_run *run, struct dp_group *group, uint64_t steps,
                            struct dp_trainer **out)
{
    const struct dp_trainer_config config = {
        .config = run->config,
        .model = run->model,
        .device = run->device,
        .group = group,
        .data = &run->data,
        .threads = run->threads,
        .first_step = run->first_step,
        .total_steps = steps,
        .schedule_steps = steps,
        .algo_choices = run->algo_choices != NULL ? run->algo_choices[group->rank] : NULL,
    };

    dp_status status;

    DP_TRY(dp_trainer_create(&config, out));
    status = dp_trainer_init(*out);
    if (status != DP_OK) {
        dp_group_leave(group, status);
        dp_trainer_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t count)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; data != NULL && i < count; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

static uint64_t hash_floats(uint64_t hash, const float *data, size_t count)
{
    return hash_bytes(hash, data, count * sizeof(float));
}

uint64_t small_hash(const struct dp_trainer *t)
{
    const struct dp_flat *f = &t->state.host->flat;
    uint64_t hash;

    if (dp_host_state_fetch(t->state.host) != DP_OK) {
        return 0;
    }
    hash = hash_bytes(0xcbf29ce484222325u, f->weights, f->trained * dp_type_bytes(f->type));
    hash = hash_floats(hash, f->running, t->model->statistics);
    if (dp_exchange_is_sharded(t->exchange)) {
        return hash; /* each rank has another part of the optimizer's state */
    }
    hash = hash_floats(hash, f->master, t->state.flat.trained);
    hash = hash_floats(hash, f->slots[0], t->state.flat.trained);
    return hash_floats(hash, f->slots[1], t->state.flat.trained);
}

dp_status small_weights(struct dp_trainer *t, float *whole)
{
    DP_TRY(dp_host_state_fetch(t->state.host));
    if (t->state.flat.type != DP_TYPE_F32) {
        return dp_exchange_collect(t->exchange, t->state.host->flat.master, whole);
    }
    if (whole != NULL) {
        memcpy(whole, t->state.host->flat.weights, t->state.flat.trained * sizeof(float));
    }
    return DP_OK;
}

struct training {
    const struct small_run *run;
    int steps;
    small_interlude *interlude;
    struct outcome *out;
};

static dp_status train_steps(const struct training *training, struct dp_trainer *t)
{
    struct outcome *out = training->out;
    struct dp_step_report report;

    for (int step = 0; step < training->steps; step++) {
        DP_TRY(dp_trainer_step(t, &report));
        out->hash[step][t->group->rank] = small_hash(t);
        out->loss[step][t->group->rank] = report.loss;
        if (t->group->rank == 0) {
            out->score += (double)report.score;
        }
        DP_TRY(training->interlude == NULL ? DP_OK : training->interlude(t));
    }
    return dp_trainer_evaluate(t, &out->evaluation[t->group->rank]);
}

static size_t train_rank(struct dp_group *group, const void *arg)
{
    const struct training *training = arg;
    struct dp_trainer *t = NULL;
    dp_status status = small_run_trainer(training->run, group, (uint64_t)training->steps, &t);

    if (status == DP_OK) {
        status = train_steps(training, t);
        if (status == DP_OK) {
            status = small_weights(t, group->rank == 0 ? training->out->weights : NULL);
        }
        if (status != DP_OK) {
            dp_group_leave(group, DP_ERR_CANCELLED);
        }
    }
    dp_trainer_destroy(t);
    return status != DP_OK;
}

size_t small_train(const struct small_run *run, int ranks, int steps, small_interlude *interlude,
                   struct outcome *out)
{
    const struct training training = {run, steps, interlude, out};

    memset(out, 0, sizeof(*out));
    out->trained = run->model->trained;
    out->weights = dp_zalloc(out->trained, sizeof(float));
    if (out->weights == NULL || ranks > SMALL_RANKS || steps > SMALL_STEPS) {
        return 1;
    }
    return on_local_ranks(ranks, train_rank, &training);
}

void outcome_fini(struct outcome *outcome)
{
    dp_free(outcome->weights);
    outcome->weights = NULL;
}

int outcome_split(const struct outcome *o, int ranks, int steps)
{
    int split = 0;

    for (int step = 0; step < steps; step++) {
        bool same = true;
        for (int rank = 1; rank < ranks; rank++) {
            same = same && o->hash[step][rank] == o->hash[step][0] &&
                   o->loss[step][rank] == o->loss[step][0];
        }
        split += !same;
    }
    return split;
}

double small_distance(const struct small_run *run, const struct outcome *a, const struct outcome *b)
{
    float *initial = dp_zalloc(a->trained, sizeof(float));
    float *running = dp_zalloc(run->model->statistics, sizeof(float));
    double apart = 0.0, way = 0.0;

    if (initial == NULL || running == NULL) {
        dp_free(running);
        dp_free(initial);
        return (double)INFINITY;
    }
    dp_model_init(run->model, (uint64_t)run->config->train.seed, initial, running);
    for (size_t i = 0; i < a->trained; i++) {
        const double d = (double)a->weights[i] - (double)b->weights[i];
        const double u = (double)b->weights[i] - (double)initial[i];
        apart += d * d;
        way += u * u;
    }
    dp_free(running);
    dp_free(initial);
    return sqrt(apart / way);
}
