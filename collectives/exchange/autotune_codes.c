#include "collectives/exchange/autotune_codes.h"

#include <string.h>

#include "collectives/compressors/compressor.h"

enum { STEP = 1 << 20 }; /* after any warm-up of a compressor */

struct dp_autotune_codes {
    const struct dp_compressor *compressor;
    const char *text;
    struct dp_bucket_plan plan; /* the buckets that are timed; owned: buckets */
    struct dp_step_params step_params;
    float *residual[2]; /* owned; [plan.largest] */
    float *warm;        /* owned; as many as the bucket with most wants */
};

/* A new state, with the compressor's options. */
static dp_status make_state(const char *text, const struct dp_compressor **compressor, void **state)
{
    const struct dp_plugin *plugin;
    char problem[256];
    const dp_status status =
        dp_plugin_create(&dp_compressors, text, &plugin, state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "comm.compressor: %s", problem);
    }
    *compressor = (const struct dp_compressor *)plugin;
    return DP_OK;
}

static dp_status choose_buckets(struct dp_autotune_codes *c, const struct dp_bucket_plan *plan,
                                size_t most_bytes)
{
    c->plan = *plan;
    c->plan.count = 0;
    c->plan.largest = 0;
    c->plan.buckets = dp_zalloc((size_t)plan->count, sizeof(*c->plan.buckets));
    if (c->plan.buckets == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "choosing a strategy for %d buckets", plan->count);
    }
    for (int b = 0; b < plan->count; b++) {
        const size_t count = plan->buckets[b].range.count;
        if (!plan->buckets[b].exact && count * sizeof(float) <= most_bytes) {
            c->plan.buckets[c->plan.count++] = plan->buckets[b];
            c->plan.largest = count > c->plan.largest ? count : c->plan.largest;
        }
    }
    return DP_OK;
}

static dp_status take_memory(struct dp_autotune_codes *c, const void *state)
{
    const struct dp_compressor *compressor = c->compressor;
    const int residuals = compressor->residuals == NULL ? 0 : compressor->residuals(state);
    size_t warm = 0;
    bool whole = true;

    for (int i = 0; i < residuals && c->plan.largest > 0; i++) {
        c->residual[i] = dp_zalloc(c->plan.largest, sizeof(float));
        whole = whole && c->residual[i] != NULL;
    }
    for (int b = 0; b < c->plan.count && compressor->warm != NULL; b++) {
        const size_t wanted = compressor->warm(state, &c->plan.buckets[b]);
        warm = wanted > warm ? wanted : warm;
    }
    if (warm > 0) {
        c->warm = dp_zalloc(warm, sizeof(float));
        whole = whole && c->warm != NULL;
    }
    for (size_t i = 0; i < warm && whole; i++) { /* equal on all ranks, as start vectors are */
        c->warm[i] = 1.0f / (float)(1 + i % 97);
    }
    return whole ? DP_OK
                 : DP_FAIL(DP_ERR_NOMEM, "choosing a strategy for compressor %s",
                           compressor->plugin.name);
}

dp_status dp_autotune_codes_create(const char *compressor, const struct dp_bucket_plan *plan,
                                   size_t most_bytes, struct dp_autotune_codes **out)
{
    struct dp_autotune_codes *c;
    void *state = NULL;
    dp_status status;

    if (compressor == NULL || strcmp(compressor, "none") == 0) {
        return DP_OK;
    }
    c = dp_zalloc(1, sizeof(*c));
    if (c == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "choosing a strategy for compressor %s", compressor);
    }
    c->text = compressor;
    c->step_params = (struct dp_step_params){.step = STEP, .loss_scale = 1.0f, .factor = 1.0f};
    status = make_state(compressor, &c->compressor, &state);
    if (status == DP_OK) {
        status = choose_buckets(c, plan, most_bytes);
    }
    if (status == DP_OK) {
        status = take_memory(c, state);
    }
    dp_free(state);
    if (status != DP_OK) {
        dp_autotune_codes_destroy(c);
        return status;
    }
    *out = c;
    return DP_OK;
}

void dp_autotune_codes_destroy(struct dp_autotune_codes *c)
{
    if (c != NULL) {
        dp_free(c->residual[0]);
        dp_free(c->residual[1]);
        dp_free(c->warm);
        dp_free(c->plan.buckets);
        dp_free(c);
    }
}

dp_status dp_autotune_codes_open(const struct dp_autotune_codes *c, struct dp_comm *comm,
                                 void **state)
{
    const struct dp_compressor *compressor;
    void *made = NULL;
    dp_status status = make_state(c->text, &compressor, &made);

    if (status == DP_OK) {
        status = compressor->open(made, comm, &c->plan);
    }
    if (status != DP_OK) {
        dp_free(made);
        return status;
    }
    *state = made;
    return DP_OK;
}

void dp_autotune_codes_close(const struct dp_autotune_codes *c, void *state)
{
    if (state != NULL) {
        c->compressor->close(state);
        dp_free(state);
    }
}

dp_status dp_autotune_codes_sum(struct dp_autotune_codes *c, void *state, float *data, size_t bytes)
{
    const struct dp_bucket *bucket = NULL;

    for (int b = 0; b < c->plan.count && bucket == NULL; b++) {
        if (c->plan.buckets[b].range.count * sizeof(float) == bytes) {
            bucket = &c->plan.buckets[b];
        }
    }
    if (bucket == NULL) {
        return DP_FAIL(DP_ERR_ARG, "no bucket has %zu bytes", bytes);
    }
    const struct dp_compressed_bucket compressed = {
        .bucket = bucket,
        .grad = {data, bucket->range.count, sizeof(float)},
        .residual = {c->residual[0], c->residual[1]},
        .warm = c->warm,
        .step_params = &c->step_params,
        .seed = 1,
    };
    return c->compressor->sum(state, &compressed, DP_KEEP_ALL);
}
