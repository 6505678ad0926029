#include "runtime/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/run.h"

enum { TEXT_BYTES = 160, LIST_BYTES = 600 };

/* What a difference in a fact means. */
enum weight {
    BINDING, /* the run cannot go on */
    ROUNDS,  /* other bits */
    LAYOUT   /* other bits, unless lanes fix the order of all sums */
};

static void put_number(char *text, int64_t value)
{
    (void)snprintf(text, TEXT_BYTES, "%" PRId64, value);
}

static void put_switch(char *text, bool value)
{
    (void)snprintf(text, TEXT_BYTES, "%s", value ? "true" : "false");
}

static void put_optimizer(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%.60s", run->config->optimizer.name);
}

static void put_precision(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", dp_precision_text(run->config->train.precision));
}

static void put_batch(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.global_batch);
}

static void put_seed(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.seed);
}

static void put_shuffle(const struct dp_training *run, char *text)
{
    put_switch(text, run->config->data.shuffle != DP_SHUFFLE_OFF);
}

static void put_drop_last(const struct dp_training *run, char *text)
{
    put_switch(text, run->config->data.drop_last);
}

static void put_rows(const struct dp_training *run, char *text)
{
    put_number(text, (int64_t)run->data.train_count);
}

static void put_device(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", run->device->plugin.name);
}

static void put_lanes(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.lanes);
}

static void put_local_steps(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.local_steps);
}

static void put_local_after(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.local_after);
}

static void put_mode(const struct dp_training *run, char *text)
{
    dp_config_value(run->config, "train.mode", text, TEXT_BYTES);
}

static void put_staleness(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.staleness);
}

static void put_servers(const struct dp_training *run, char *text)
{
    put_number(text, run->config->comm.servers);
}

static void put_micro_batch(const struct dp_training *run, char *text)
{
    put_number(text, run->config->train.micro_batch);
}

static void put_compressor(const struct dp_training *run, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%.80s", run->config->comm.compressor);
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
    (void)snprintf(text, TEXT_BYTES, "%016" PRIx64, run->trainer->exchange->plan->hash);
}

static const struct {
    const char *name;
    enum weight weight;
    void (*put)(const struct dp_training *run, char *text);
} facts[] = {
    {"optimizer.name", BINDING, put_optimizer},
    {"train.precision", BINDING, put_precision},
    {"train.global_batch", BINDING, put_batch},
    {"train.seed", BINDING, put_seed},
    {"data.shuffle", BINDING, put_shuffle},
    {"data.drop_last", BINDING, put_drop_last},
    {"training rows", BINDING, put_rows},
    {"device", ROUNDS, put_device},
    {"train.local_steps", ROUNDS, put_local_steps},
    {"train.local_after", ROUNDS, put_local_after},
    {"train.lanes", ROUNDS, put_lanes},
    {"train.micro_batch", ROUNDS, put_micro_batch},
    {"train.mode", ROUNDS, put_mode},
    {"train.staleness", ROUNDS, put_staleness},
    {"comm.servers", ROUNDS, put_servers},
    {"comm.compressor", ROUNDS, put_compressor},
    {"ranks", LAYOUT, put_ranks},
    {"comm.strategy", LAYOUT, put_strategy},
    {"buckets", LAYOUT, put_plan},
};

enum { FACT_COUNT = sizeof(facts) / sizeof(facts[0]) };

dp_status dp_facts_write(const struct dp_training *run, struct dp_json *object)
{
    char text[TEXT_BYTES];

    for (int i = 0; i < FACT_COUNT; i++) {
        facts[i].put(run, text);
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

    facts[i].put(run, now);
    if (then == NULL || strcmp(then, now) == 0) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s %.80s -> %s", used == 0 ? "" : ", ",
                   facts[i].name, then, now);
    return true;
}

bool dp_facts_same(const struct dp_training *run, const struct dp_json *object, const char *name)
{
    char ignored[LIST_BYTES] = "";

    for (int i = 0; i < FACT_COUNT; i++) {
        if (strcmp(facts[i].name, name) == 0) {
            return !differs(run, object, i, ignored, sizeof(ignored));
        }
    }
    return false;
}

dp_status dp_facts_check(const struct dp_training *run, const struct dp_json *object,
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

bool dp_facts_compare(const struct dp_training *run, const struct dp_json *object, char *text,
                      size_t size)
{
    const bool lanes = run->config->train.lanes > 0;
    bool same = true;

    text[0] = '\0';
    for (int i = 0; i < FACT_COUNT; i++) {
        if (facts[i].weight != BINDING && differs(run, object, i, text, size)) {
            same = same && facts[i].weight == LAYOUT && lanes;
        }
    }
    return same;
}
