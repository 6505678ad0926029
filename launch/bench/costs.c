#include "launch/bench/costs.h"

#include <stdio.h>
#include <string.h>

#include "base/files/input.h"
#include "base/json.h"
#include "base/mem.h"

/* Whose costs they are, and of which buckets. */
#include "collectives/compressors/compression.h"
#include "collectives/exchange/strategy_candidates.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/strategy.h"
#include "runtime/config/config_load.h"
#include "runtime/run/check.h"
#include "runtime/trainer/step_scalars.h"

enum { TEXT_MAX = 1 << 20, RANKS_MAX = 1 << 16, SIZES_MAX = 4096, SETS_MAX = 16 };

struct costs {
    const char *path;
    struct dp_json *asked; /* owned */
    struct dp_json *told;  /* owned */
    struct dp_cost cost;
    const struct dp_json *sizes, *strategies;
    struct dp_config *config;    /* owned; of the model, as the next two; NULL without one */
    struct dp_model *model;      /* owned */
    struct dp_bucket_plan *plan; /* owned */
};

/* ---- what is asked ---- */

static dp_status read_curve(const struct costs *c, const char *name, struct dp_curve *curve)
{
    const struct dp_json *points = dp_json_get(dp_json_get(c->asked, "curves"), name);
    const struct dp_json *bytes = dp_json_get(points, "bytes"),
                         *seconds = dp_json_get(points, "seconds");
    const size_t count = dp_json_length(bytes);
    double last = -1.0;

    if (points == NULL) {
        return DP_OK;
    }
    if (count == 0 || count > DP_CURVE_POINTS || count != dp_json_length(seconds)) {
        return DP_FAIL(DP_ERR_DATA, "%s: curve %s wants 1 to %d bytes, and as many seconds",
                       c->path, name, DP_CURVE_POINTS);
    }
    for (size_t i = 0; i < count; i++) {
        if (!dp_json_real(dp_json_at(bytes, i), &curve->bytes[i]) ||
            !dp_json_real(dp_json_at(seconds, i), &curve->seconds[i]) || curve->bytes[i] <= last ||
            !(curve->seconds[i] >= 0.0)) {
            return DP_FAIL(DP_ERR_DATA, "%s: curve %s wants rising bytes, and seconds from 0 on",
                           c->path, name);
        }
        last = curve->bytes[i];
    }
    curve->count = (int)count;
    return DP_OK;
}

static dp_status read_cost(struct costs *c)
{
    struct dp_curve *curve;
    const char *name;

    for (int i = 0; (curve = dp_cost_curve(&c->cost, i, &name)) != NULL; i++) {
        DP_TRY(read_curve(c, name, curve));
    }
    (void)dp_json_real(dp_json_get(c->asked, "flags_s"), &c->cost.flags_s);
    dp_cost_fit(&c->cost);
    return DP_OK;
}

static dp_status read_lists(struct costs *c)
{
    char problem[256];
    double bytes;

    c->sizes = dp_json_get(c->asked, "bytes");
    c->strategies = dp_json_get(c->asked, "strategies");
    if (dp_json_length(c->sizes) > SIZES_MAX) {
        return DP_FAIL(DP_ERR_DATA, "%s: more than %d sizes", c->path, SIZES_MAX);
    }
    for (size_t i = 0; i < dp_json_length(c->sizes); i++) {
        if (!dp_json_real(dp_json_at(c->sizes, i), &bytes) || !(bytes >= 0.0 && bytes < 1e15)) {
            return DP_FAIL(DP_ERR_DATA, "%s: bytes wants numbers from 0 to 1e15", c->path);
        }
    }
    for (size_t i = 0; i < dp_json_length(c->strategies); i++) {
        const char *name = dp_json_text(dp_json_at(c->strategies, i));
        if (name == NULL) {
            return DP_FAIL(DP_ERR_DATA, "%s: strategies wants texts", c->path);
        }
        const dp_status status = dp_strategy_select_check(name, false, problem, sizeof(problem));
        if (status != DP_OK) {
            return DP_FAIL(status, "%s: %s", c->path, problem);
        }
    }
    return DP_OK;
}

static dp_status read_config(struct costs *c, const char *path)
{
    const struct dp_json *asked = dp_json_get(c->asked, "set");
    char *const environment[] = {NULL};
    const char *sets[SETS_MAX];
    const size_t count = dp_json_length(asked);
    char *text = NULL;
    dp_status status;

    for (size_t i = 0; i < count; i++) {
        const char *set = i < SETS_MAX ? dp_json_text(dp_json_at(asked, i)) : NULL;
        if (set == NULL) {
            return DP_FAIL(DP_ERR_DATA, "%s: set wants at most %d texts", c->path, SETS_MAX);
        }
        sets[i] = set;
    }
    DP_TRY(dp_config_resolve(path, environment, sets, (int)count, &text));
    status = dp_config_parse(text, path, &c->config);
    dp_free(text);
    return status == DP_OK ? dp_run_check_names(c->config) : status;
}

/* The buckets of a model, cut as the trainer does. */
static dp_status read_model(struct costs *c)
{
    const char *path = dp_json_text(dp_json_get(c->asked, "model"));
    struct dp_bucket_sizes sizes = {0};

    if (path == NULL) {
        return DP_OK;
    }
    DP_TRY(read_config(c, path));
    DP_TRY(dp_model_create(c->config->model.layers, c->config->model.layer_count,
                           &c->config->model.input, &c->model));
    sizes.first_count = (size_t)(c->config->comm.first_bucket_mb * 1048576.0) / sizeof(float);
    sizes.max_count = (size_t)(c->config->comm.bucket_mb * 1048576.0) / sizeof(float);
    (void)dp_json_switch(dp_json_get(c->asked, "deferred"), &sizes.deferred);
    return dp_bucket_plan_create(c->model->tensors, c->model->tensor_count, c->model->trained,
                                 c->model->trained + dp_step_scalars_tail(c->model->statistics),
                                 &sizes, &c->plan);
}

static dp_status read_asked(struct costs *c)
{
    char *text = dp_zalloc(TEXT_MAX + 1, 1);
    size_t bytes;
    dp_status status;

    if (text == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "--costs %s", c->path);
    }
    status = dp_input_read(strcmp(c->path, "-") == 0 ? "/dev/stdin" : c->path, text, TEXT_MAX + 1,
                           &bytes);
    if (status == DP_OK && bytes > TEXT_MAX) {
        status = DP_FAIL(DP_ERR_DATA, "%s: longer than %d bytes", c->path, TEXT_MAX);
    }
    if (status == DP_OK) {
        status = dp_json_parse(text, bytes, c->path, &c->asked);
    }
    dp_free(text);
    DP_TRY(status);
    DP_TRY(read_cost(c));
    DP_TRY(read_lists(c));
    return read_model(c);
}

/* ---- what is answered ---- */

/* What coding of a bucket is proportional to. */
static dp_status add_work(const struct costs *c, const struct dp_group *group, struct dp_json *row)
{
    const struct dp_coding_work work = dp_compression_work(c->config->comm.compressor, group->size);

    DP_TRY(dp_json_set_real(row, "encodes", work.encodes));
    return dp_json_set_real(row, "decodes", work.decodes);
}

/* A row, where `name` can run in this group. */
static dp_status add_row(const struct costs *c, const struct dp_group *group, const char *name,
                         struct dp_json *rows)
{
    const char *over = strstr(name, ":over=");
    struct dp_json *row, *seconds;
    double bytes;

    name = over != NULL ? over + strlen(":over=") : name; /* as many bytes, in the same order */
    if (!dp_strategy_candidate_runs(group, name)) {
        return DP_OK;
    }
    row = dp_json_push_object(rows);
    DP_TRY(dp_json_set_int(row, "ranks", group->size));
    DP_TRY(dp_json_set_int(row, "node_of", group->local_size));
    DP_TRY(dp_json_set_text(row, "strategy", name));
    DP_TRY(c->plan != NULL ? add_work(c, group, row) : DP_OK);
    seconds = dp_json_set_array(row, "seconds");
    for (int b = 0; c->plan != NULL && b < c->plan->count; b++) {
        DP_TRY(
            dp_json_push_real(seconds, dp_compression_cost(c->config->comm.compressor, name,
                                                           &c->cost, group, &c->plan->buckets[b])));
    }
    for (size_t i = 0; c->plan == NULL && i < dp_json_length(c->sizes); i++) {
        (void)dp_json_real(dp_json_at(c->sizes, i), &bytes);
        DP_TRY(dp_json_push_real(seconds, dp_strategy_cost(name, &c->cost, group, (size_t)bytes)));
    }
    return DP_OK;
}

static dp_status add_rows(const struct costs *c, const struct dp_group *group, struct dp_json *rows)
{
    const char *name;

    if (c->strategies != NULL) {
        for (size_t i = 0; i < dp_json_length(c->strategies); i++) {
            DP_TRY(add_row(c, group, dp_json_text(dp_json_at(c->strategies, i)), rows));
        }
        return DP_OK;
    }
    for (int i = 0; (name = dp_strategy_candidate(i)) != NULL; i++) {
        DP_TRY(add_row(c, group, name, rows));
    }
    return DP_OK;
}

/* Ranks of a node are consecutive; the last node may have fewer. */
static dp_status add_group(const struct costs *c, const struct dp_json *asked, struct dp_json *rows)
{
    int64_t ranks, local;
    struct dp_group group = {0};
    dp_status status;
    int *node_of;

    if (!dp_json_int(dp_json_get(asked, "ranks"), &ranks) || ranks < 1 || ranks > RANKS_MAX ||
        !dp_json_int(dp_json_get(asked, "node_of"), &local) || local < 1 || local > RANKS_MAX) {
        return DP_FAIL(DP_ERR_DATA, "%s: groups wants {ranks, node_of} from 1 to %d", c->path,
                       RANKS_MAX);
    }
    node_of = dp_zalloc((size_t)ranks, sizeof(*node_of));
    if (node_of == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a group of %d ranks", (int)ranks);
    }
    for (int i = 0; i < (int)ranks; i++) {
        node_of[i] = i / (int)local;
    }
    group.size = (int)ranks;
    group.node_of = node_of;
    group.nodes = node_of[ranks - 1] + 1;
    group.local_size = (int)(local < ranks ? local : ranks);
    status = add_rows(c, &group, rows);
    dp_free(node_of);
    return status;
}

static dp_status add_buckets(const struct costs *c)
{
    struct dp_json *buckets = dp_json_set_array(c->told, "buckets");

    for (int b = 0; b < c->plan->count; b++) {
        const struct dp_bucket *bucket = &c->plan->buckets[b];
        struct dp_json *row = dp_json_push_object(buckets);
        DP_TRY(dp_json_set_int(row, "bytes", (int64_t)(bucket->range.count * sizeof(float))));
        DP_TRY(dp_json_set_bool(row, "deferred", bucket->deferred));
        if (!bucket->exact) {
            DP_TRY(dp_json_set_text(row, "tensor", bucket->tensors[0].name));
        }
    }
    return DP_OK;
}

static dp_status answer(struct costs *c)
{
    const struct dp_json *groups = dp_json_get(c->asked, "groups");
    const struct dp_cost *cost = &c->cost;
    struct dp_json *rows;

    c->told = dp_json_create();
    DP_TRY(dp_json_set_real(c->told, "alpha_us", 1e6 * cost->alpha[DP_LINK_WIRE]));
    DP_TRY(dp_json_set_real(c->told, "beta_ns", 1e9 * cost->beta[DP_LINK_WIRE]));
    DP_TRY(dp_json_set_real(c->told, "gamma_ns", 1e9 * cost->gamma));
    DP_TRY(c->plan != NULL ? add_buckets(c) : DP_OK);
    rows = dp_json_set_array(c->told, "rows");
    for (size_t i = 0; i < dp_json_length(groups); i++) {
        DP_TRY(add_group(c, dp_json_at(groups, i), rows));
    }
    return DP_OK;
}

static dp_status print(const struct costs *c)
{
    char *text = NULL;

    DP_TRY(dp_json_dump(c->told, 0, DP_JSON_READABLE, &text));
    (void)puts(text);
    dp_free(text);
    return DP_OK;
}

dp_status dp_bench_costs(const char *path)
{
    struct costs costs = {.path = path};
    dp_status status = read_asked(&costs);

    if (status == DP_OK) {
        status = answer(&costs);
    }
    if (status == DP_OK) {
        status = print(&costs);
    }
    dp_bucket_plan_destroy(costs.plan);
    dp_model_destroy(costs.model);
    dp_config_destroy(costs.config);
    dp_json_destroy(costs.told);
    dp_json_destroy(costs.asked);
    return status;
}
