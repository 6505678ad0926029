#include "runtime/run/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/config/config.h"

#define SCHEMA "lockstep.plan/1"

static const char plan_mark[] = DP_PLAN_MARK, choices_mark[] = DP_PLAN_CHOICES_MARK;

static const char *const overlaps[] = {
    [DP_OVERLAP_AUTO] = "auto", [DP_OVERLAP_ON] = "on", [DP_OVERLAP_OFF] = "off"};

const char *dp_plan_overlap_text(int overlap)
{
    return overlaps[overlap];
}

/* ---- reading ---- */

static bool take_text(const struct dp_json *object, const char *key, char *text, size_t size)
{
    const char *value = dp_json_text(dp_json_get(object, key));

    return value != NULL && (size_t)snprintf(text, size, "%s", value) < size;
}

static dp_status take(const struct dp_json *object, const char *path, struct dp_plan *plan)
{
    char schema[32] = "", overlap[8] = "";
    int64_t ranks = 0, nodes = 0;

    plan->overlap = -1;
    plan->key[0] = '\0';
    (void)take_text(object, "overlap", overlap, sizeof(overlap));
    for (int i = 0; i < (int)(sizeof(overlaps) / sizeof(overlaps[0])); i++) {
        plan->overlap = strcmp(overlap, overlaps[i]) == 0 ? i : plan->overlap;
    }
    if (!take_text(object, "schema", schema, sizeof(schema)) || strcmp(schema, SCHEMA) != 0 ||
        !take_text(object, "strategy", plan->strategy, sizeof(plan->strategy)) ||
        !take_text(object, "buckets", plan->buckets, sizeof(plan->buckets)) ||
        !take_text(object, "reason", plan->reason, sizeof(plan->reason)) || plan->overlap < 0 ||
        !dp_json_int(dp_json_get(object, "ranks"), &ranks) || ranks < 1 || ranks > INT32_MAX ||
        !dp_json_int(dp_json_get(object, "nodes"), &nodes) || nodes < 1 || nodes > ranks) {
        return DP_FAIL(DP_ERR_DATA, "%s: its plan is not one of schema " SCHEMA, path);
    }
    plan->ranks = (int)ranks;
    plan->nodes = (int)nodes;
    (void)take_text(object, "key", plan->key, sizeof(plan->key));
    return DP_OK;
}

/* What follows the last mark in a file, up to the end of the line. */
static const char *find_marked(const char *text, const char *mark, size_t *length)
{
    const char *found = NULL;

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, mark, strlen(mark)) == 0) {
            found = line + strlen(mark);
        }
    }
    if (found != NULL) {
        *length = strcspn(found, "\n");
    }
    return found;
}

/* The object of a plan: all of the file, or what is marked. */
static const char *find_object(const char *text, size_t *length)
{
    *length = strlen(text);
    return text[strspn(text, " \t\r\n")] == '{' ? text : find_marked(text, plan_mark, length);
}

dp_status dp_plan_read_choices(const char *path, struct dp_json **out)
{
    const char *object;
    char *text = NULL;
    size_t bytes = 0;
    dp_status status = DP_OK;

    *out = NULL;
    DP_TRY(dp_file_read(path, 1 << 24, &text, &bytes));
    object = find_marked(text, choices_mark, &bytes);
    if (object != NULL) {
        status = dp_json_parse(object, bytes, path, out);
    }
    dp_free(text);
    return status;
}

dp_status dp_plan_read(const char *path, struct dp_plan *plan)
{
    struct dp_json *json = NULL;
    const char *object;
    char *text = NULL;
    size_t bytes = 0;
    dp_status status;

    DP_TRY(dp_file_read(path, 1 << 24, &text, &bytes));
    object = find_object(text, &bytes);
    status = object != NULL
                 ? dp_json_parse(object, bytes, path, &json)
                 : DP_FAIL(DP_ERR_DATA, "%s holds no plan: give the config.yaml of a run", path);
    if (status == DP_OK) {
        status = take(json, path, plan);
    }
    dp_json_destroy(json);
    dp_free(text);
    return status;
}

/* ---- writing ---- */

static dp_status put(struct dp_json *object, const struct dp_plan *plan)
{
    DP_TRY(dp_json_set_text(object, "schema", SCHEMA));
    DP_TRY(dp_json_set_text(object, "strategy", plan->strategy));
    DP_TRY(dp_json_set_text(object, "overlap", overlaps[plan->overlap]));
    DP_TRY(dp_json_set_int(object, "ranks", plan->ranks));
    DP_TRY(dp_json_set_int(object, "nodes", plan->nodes));
    DP_TRY(dp_json_set_text(object, "buckets", plan->buckets));
    DP_TRY(dp_json_set_text(object, "reason", plan->reason));
    return plan->key[0] != '\0' ? dp_json_set_text(object, "key", plan->key) : DP_OK;
}

dp_status dp_plan_text(const struct dp_plan *plan, char **text)
{
    struct dp_json *object = dp_json_create();
    dp_status status = put(object, plan);

    if (status == DP_OK) {
        status = dp_json_dump(object, 0, DP_JSON_READABLE, text);
    }
    dp_json_destroy(object);
    return status;
}
