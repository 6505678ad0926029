#include "runtime/run/run_fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "collectives/compressors/compressor.h"
#include "runtime/run/run.h"

enum { TEXT_BYTES = 160, LIST_BYTES = 600 };

/* What a difference in a fact means. */
enum weight {
    BINDING,  /* the run cannot go on */
    ROUNDS,   /* other bits */
    AVERAGES, /* other bits where ranks train alone: it averages their weights */
    LAYOUT    /* other bits, unless lanes fix the order of all sums */
};

static void put_number(char *text, int64_t value)
{
    (void)snprintf(text, TEXT_BYTES, "%" PRId64, value);
}

static void put_hash(char *text, uint64_t hash)
{
    (void)snprintf(text, TEXT_BYTES, "%016" PRIx64, hash);
}

static void put_switch(char *text, bool value)
{
    (void)snprintf(text, TEXT_BYTES, "%s", value ? "true" : "false");
}

static void put_optimizer(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%.60s", run->config->optimizer.name);
}

static void put_shuffle(const struct dp_training *run, char *text)
{
    put_switch(text, run->config->data.shuffle != DP_SHUFFLE_OFF);
}

static void put_rows(const struct dp_training *run, char *text)
{
    put_number(text, (int64_t)run->data.train_count);
}

/* Tells one data set from another of as many rows, wherever it lies. */
static void put_labels(const struct dp_training *run, char *text)
{
    put_hash(text, XXH3_64bits(run->data.train_labels,
                               run->data.train_count * sizeof(*run->data.train_labels)));
}

static void put_device(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", run->device->plugin.name);
}

/* What computes convolutions, and its version: "cudnn 9.19.0"; empty where there is no choice. */
static void put_conv(const struct dp_training *run, char *text)
{
    const char *engine = NULL;

    text[0] = '\0';
    if (dp_device_find_conv(run->device, (enum dp_conv_engine)run->config->device.conv, &engine) ==
            DP_OK &&
        engine != NULL) {
        (void)snprintf(text, TEXT_BYTES, "%.*s", (int)strcspn(engine, "("), engine);
    }
}

/* What the algorithms of a GPU's libraries depend on; empty where none are chosen. */
static void put_machine(const struct dp_training *run, char *text)
{
    text[0] = '\0';
    if (run->device->machine != NULL) {
        run->device->machine(text, TEXT_BYTES);
    }
}

/* Whether they are chosen by measuring. The choices themselves go on with the run. */
static void put_tune(const struct dp_training *run, char *text)
{
    put_switch(text, run->algo_choices != NULL);
}

static void put_isa(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", run->machine->isa);
}

static void put_threads(const struct dp_training *run, char *text)
{
    put_number(text, run->threads);
}

static void put_compressor(const struct dp_training *run, char *text)
{
    dp_plugin_spell(&dp_compressors, run->config->comm.compressor, text, TEXT_BYTES);
}

static void put_ranks(const struct dp_training *run, char *text)
{
    put_number(text, run->trainer->trainers);
}

static void put_strategy(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", run->trainer->exchange->label);
}

/* Where the gradient is cut: of rings, which rank begins a sum follows from it. */
static void put_plan(const struct dp_training *run, char *text)
{
    put_hash(text, run->trainer->exchange->plan->hash);
}

/* Steps that the learning rate is made for; 0: it does not depend on them. */
static void put_schedule_steps(const struct dp_training *run, char *text)
{
    const int name = run->config->optimizer.schedule.name;

    put_number(text, name == DP_SCHEDULE_COSINE || name == DP_SCHEDULE_LINEAR
                         ? (int64_t)run->config_steps
                         : 0);
}

/* Kinds and options of layers, `repeat` unrolled: also what no tensor shows, as a dropout's
 * rate. */
static uint64_t hash_layers(const struct dp_layer_spec *layers, int count, uint64_t hash)
{
    char value[DP_OPTION_PRINTED];

    for (int i = 0; i < count; i++) {
        const struct dp_layer_spec *layer = &layers[i];
        const struct dp_option *row = layer->type->plugin.options;

        hash = XXH3_64bits_withSeed(layer->type->plugin.name, strlen(layer->type->plugin.name),
                                    hash + (uint64_t)layer->body_count);
        for (; row != NULL && row->kind != DP_OPTION_END; row++) {
            dp_option_print(row, layer->options, value, sizeof(value));
            hash = XXH3_64bits_withSeed(value, strlen(value), hash);
        }
        hash = hash_layers(layer->body, layer->body_count, hash);
        hash = hash_layers(layer->shortcut, layer->shortcut_count, hash);
    }
    return hash;
}

static void put_layers(const struct dp_training *run, char *text)
{
    const struct dp_model_config *model = &run->config->model;

    put_hash(text, hash_layers(model->layers, model->layer_count, 0));
}

/* Everything that changes a bit of the weights. */
static const struct fact {
    const char *name; /* a key of the configuration, unless `put` is given */
    enum weight weight;
    void (*put)(const struct dp_training *run, char *text); /* NULL: the key's value */
} facts[] = {
    {"optimizer.name", BINDING, put_optimizer},
    {"train.precision", BINDING, NULL},
    {"train.global_batch", BINDING, NULL},
    {"train.seed", BINDING, NULL},
    {"data.shuffle", BINDING, put_shuffle},
    {"data.drop_last", BINDING, NULL},
    {"training rows", BINDING, put_rows},
    {"data.source", ROUNDS, NULL},
    {"training labels", ROUNDS, put_labels},
    {"data.normalize.mean", ROUNDS, NULL},
    {"data.normalize.std", ROUNDS, NULL},
    {"model.layers", ROUNDS, put_layers},
    {"optimizer.lr", ROUNDS, NULL},
    {"optimizer.momentum", ROUNDS, NULL},
    {"optimizer.nesterov", ROUNDS, NULL},
    {"optimizer.betas", ROUNDS, NULL},
    {"optimizer.eps", ROUNDS, NULL},
    {"optimizer.weight_decay", ROUNDS, NULL},
    {"optimizer.clip_norm", ROUNDS, NULL},
    {"optimizer.schedule.name", ROUNDS, NULL},
    {"optimizer.schedule.warmup_steps", ROUNDS, NULL},
    {"optimizer.schedule.step_size", ROUNDS, NULL},
    {"optimizer.schedule.gamma", ROUNDS, NULL},
    {"optimizer.schedule.eta_min", ROUNDS, NULL},
    {"steps of the schedule", ROUNDS, put_schedule_steps},
    {"device", ROUNDS, put_device},
    {"device.conv", ROUNDS, put_conv},
    {"device.tune", ROUNDS, put_tune},
    {"GPU", ROUNDS, put_machine},
    {"instructions", ROUNDS, put_isa},
    {"train.local_steps", ROUNDS, NULL},
    {"train.local_after", ROUNDS, NULL},
    {"train.lanes", ROUNDS, NULL},
    {"train.micro_batch", ROUNDS, NULL},
    {"train.mode", ROUNDS, NULL},
    {"train.staleness", ROUNDS, NULL},
    {"comm.servers", ROUNDS, NULL},
    {"comm.compressor", ROUNDS, put_compressor},
    {"train.eval_every", AVERAGES, NULL},
    {"checkpoint.every_steps", AVERAGES, NULL},
    {"ranks", LAYOUT, put_ranks},
    {"threads a rank", LAYOUT, put_threads},
    {"comm.strategy", LAYOUT, put_strategy},
    {"buckets", LAYOUT, put_plan},
};

enum { FACT_COUNT = sizeof(facts) / sizeof(facts[0]) };

static void put_fact(const struct dp_training *run, const struct fact *fact, char *text)
{
    if (fact->put != NULL) {
        fact->put(run, text);
    } else {
        dp_config_value(run->config, fact->name, text, TEXT_BYTES);
    }
}

dp_status dp_run_fingerprint_write(const struct dp_training *run, struct dp_json *object)
{
    char text[TEXT_BYTES];

    for (int i = 0; i < FACT_COUNT; i++) {
        put_fact(run, &facts[i], text);
        DP_TRY(dp_json_set_text(object, facts[i].name, text));
    }
    return DP_OK;
}

/* Adds "NAME THEN -> NOW" where fact `i` differs from what the checkpoint says. */
static bool differs(const struct dp_training *run, const struct dp_json *object, int i, char *list,
                    size_t size)
{
    const char *then = dp_json_text(dp_json_get(object, facts[i].name));
    const size_t used = strlen(list);
    char now[TEXT_BYTES];

    put_fact(run, &facts[i], now);
    if (then == NULL || strcmp(then, now) == 0) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s %.80s -> %s", used == 0 ? "" : ", ",
                   facts[i].name, then, now);
    return true;
}

/* The same of a fact that the checkpoint, of an older version, does not tell. */
static bool is_unknown(const struct dp_training *run, const struct dp_json *object, int i,
                       char *list, size_t size)
{
    const size_t used = strlen(list);
    char now[TEXT_BYTES];

    put_fact(run, &facts[i], now);
    if (now[0] == '\0' || dp_json_text(dp_json_get(object, facts[i].name)) != NULL) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s not known -> %s", used == 0 ? "" : ", ",
                   facts[i].name, now);
    return true;
}

bool dp_run_fingerprint_same(const struct dp_training *run, const struct dp_json *object,
                             const char *name)
{
    char ignored[LIST_BYTES] = "";

    for (int i = 0; i < FACT_COUNT; i++) {
        if (strcmp(facts[i].name, name) == 0) {
            return !differs(run, object, i, ignored, sizeof(ignored));
        }
    }
    return false;
}

dp_status dp_run_fingerprint_check(const struct dp_training *run, const struct dp_json *object,
                                   const char *source)
{
    char list[LIST_BYTES] = "";
    bool any = false;

    for (int i = 0; i < FACT_COUNT; i++) {
        any |= facts[i].weight == BINDING && differs(run, object, i, list, sizeof(list));
    }
    if (any) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s is of another run: %s; to begin a new one with its weights: --init "
                       "%s/model.safetensors",
                       source, list, source);
    }
    return DP_OK;
}

bool dp_run_fingerprint_compare(const struct dp_training *run, const struct dp_json *object,
                                char *text, size_t size)
{
    const bool lanes = run->config->train.lanes > 0, alone = run->config->train.local_steps > 1;
    bool same = true;

    text[0] = '\0';
    for (int i = 0; i < FACT_COUNT; i++) {
        const enum weight weight = facts[i].weight;
        if (weight != BINDING && (weight != AVERAGES || alone) &&
            (differs(run, object, i, text, size) || is_unknown(run, object, i, text, size))) {
            same = same && weight == LAYOUT && lanes;
        }
    }
    return same;
}
