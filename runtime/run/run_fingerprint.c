#include "runtime/run/run_fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "collectives/compressors/compressor.h"
#include "runtime/config/config_print.h"
#include "runtime/optim/schedule.h"
#include "runtime/run/training.h"

enum { TEXT_BYTES = 160, LIST_BYTES = 600 };

/* Beside enum dp_key_flag: the weights get other bits unless lanes fix the order of all sums. */
enum { LAYOUT = 1 << 8 };

/* The texts of keys that are more, or less, than their value. */
struct view {
    const char *key;
    void (*put)(const struct dp_training *run, char *text);
};

/* Something that a run depends on: a key of the configuration, or what it met. */
struct fact {
    char name[DP_CONFIG_KEY];
    unsigned flags;
    void (*put)(const struct dp_training *run, char *text); /* NULL: the key's value */
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
    put_number(text, dp_trainer_ranks(run->trainer));
}

static void put_strategy(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", dp_exchange_label(dp_trainer_exchange(run->trainer)));
}

/* Where the gradient is cut: of rings, which rank begins a sum follows from it. */
static void put_plan(const struct dp_training *run, char *text)
{
    put_hash(text, dp_exchange_plan(dp_trainer_exchange(run->trainer))->hash);
}

/* Steps that the learning rate is made for; 0: it does not depend on them. */
static void put_schedule_steps(const struct dp_training *run, char *text)
{
    const bool stretches = dp_schedule_of(&run->config->optimizer)->stretches;

    put_number(text, stretches ? (int64_t)run->config_steps : 0);
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

static const struct view views[] = {
    {"optimizer.name", put_optimizer},   {"data.shuffle", put_shuffle},
    {"device.conv", put_conv},           {"device.tune", put_tune},
    {"comm.compressor", put_compressor},
};

/* What is no key. */
static const struct fact others[] = {
    {"training rows", DP_KEY_BINDS, put_rows},
    {"training labels", DP_KEY_BITS, put_labels},
    {"model.layers", DP_KEY_BITS, put_layers},
    {"steps of the schedule", DP_KEY_BITS, put_schedule_steps},
    {"device", DP_KEY_BITS | DP_KEY_AUTO, put_device},
    {"GPU", DP_KEY_BITS, put_machine},
    {"instructions", DP_KEY_BITS, put_isa},
    {"ranks", LAYOUT, put_ranks},
    {"threads a rank", LAYOUT, put_threads},
    {"comm.strategy", LAYOUT, put_strategy},
    {"buckets", LAYOUT, put_plan},
};

enum { OTHERS = sizeof(others) / sizeof(others[0]), VIEWS = sizeof(views) / sizeof(views[0]) };

/* Fact number `i`, from 0; false: there are no more. */
static bool fact_at(int i, struct fact *fact)
{
    if (i < OTHERS) {
        *fact = others[i];
        return true;
    }
    fact->put = NULL;
    if (!dp_config_flagged(i - OTHERS, fact->name, &fact->flags)) {
        return false;
    }
    for (int v = 0; v < VIEWS; v++) {
        fact->put = strcmp(views[v].key, fact->name) == 0 ? views[v].put : fact->put;
    }
    return true;
}

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
    struct fact fact;

    for (int i = 0; fact_at(i, &fact); i++) {
        put_fact(run, &fact, text);
        DP_TRY(dp_json_set_text(object, fact.name, text));
    }
    return DP_OK;
}

/* Adds "NAME THEN -> NOW" where a fact differs from what the checkpoint says. */
static bool differs(const struct dp_training *run, const struct dp_json *object,
                    const struct fact *fact, char *list, size_t size)
{
    const char *then = dp_json_text(dp_json_get(object, fact->name));
    const size_t used = strlen(list);
    char now[TEXT_BYTES];

    if (then == NULL) {
        return false;
    }
    put_fact(run, fact, now);
    if (strcmp(then, now) == 0) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s %.80s -> %s", used == 0 ? "" : ", ", fact->name,
                   then, now);
    return true;
}

/* The same of a fact that the checkpoint, of an older version, does not have. */
static bool is_unknown(const struct dp_training *run, const struct dp_json *object,
                       const struct fact *fact, char *list, size_t size)
{
    const size_t used = strlen(list);
    char now[TEXT_BYTES];

    put_fact(run, fact, now);
    if (now[0] == '\0' || dp_json_text(dp_json_get(object, fact->name)) != NULL) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s not known -> %s", used == 0 ? "" : ", ",
                   fact->name, now);
    return true;
}

bool dp_run_fingerprint_same(const struct dp_training *run, const struct dp_json *object,
                             const char *name)
{
    char ignored[LIST_BYTES] = "";
    struct fact fact;

    for (int i = 0; fact_at(i, &fact); i++) {
        if (strcmp(fact.name, name) == 0) {
            return !differs(run, object, &fact, ignored, sizeof(ignored));
        }
    }
    return false;
}

bool dp_run_fingerprint_same_for_auto(const struct dp_training *run, const struct dp_json *object)
{
    char ignored[LIST_BYTES] = "";
    struct fact fact;
    bool same = true;

    for (int i = 0; fact_at(i, &fact); i++) {
        same = same && ((fact.flags & DP_KEY_AUTO) == 0 ||
                        !differs(run, object, &fact, ignored, sizeof(ignored)));
    }
    return same;
}

uint64_t dp_run_fingerprint_hash_for_auto(const struct dp_training *run, uint64_t seed)
{
    char text[TEXT_BYTES];
    struct fact fact;

    for (int i = 0; fact_at(i, &fact); i++) {
        if ((fact.flags & DP_KEY_AUTO) != 0) {
            put_fact(run, &fact, text);
            seed = XXH3_64bits_withSeed(text, strlen(text) + 1, seed);
        }
    }
    return seed;
}

dp_status dp_run_fingerprint_check(const struct dp_training *run, const struct dp_json *object,
                                   const char *source)
{
    char list[LIST_BYTES] = "";
    struct fact fact;
    bool any = false;

    for (int i = 0; fact_at(i, &fact); i++) {
        any |= (fact.flags & DP_KEY_BINDS) != 0 && differs(run, object, &fact, list, sizeof(list));
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
    const unsigned alone = run->config->train.local_steps > 1 ? DP_KEY_AVERAGES : 0;
    const bool lanes = run->config->train.lanes > 0;
    struct fact fact;
    bool same = true;

    text[0] = '\0';
    for (int i = 0; fact_at(i, &fact); i++) {
        if ((fact.flags & (DP_KEY_BITS | LAYOUT | alone)) != 0 &&
            (differs(run, object, &fact, text, size) ||
             is_unknown(run, object, &fact, text, size))) {
            same = same && (fact.flags & LAYOUT) != 0 && lanes;
        }
    }
    return same;
}
