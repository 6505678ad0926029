#include "runtime/run/run_model.h"

#include <stdio.h>

#include "base/log.h"
#include "runtime/config/config_load.h"

static dp_status cut(const struct dp_config *config, struct dp_model *model)
{
    const int parts = config->model.recompute;
    char where[256];
    int most;

    if (parts == DP_RECOMPUTE_OFF || parts == DP_RECOMPUTE_AUTO) {
        return DP_OK;
    }
    DP_TRY(dp_model_parts_most(model, &most));
    if (parts > most) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s: these layers can be cut into %d part%s at most, not %d: cuts are where "
                       "one value alone goes on, never inside of a residual or concat",
                       dp_config_where(config, "model.recompute", where, sizeof(where)), most,
                       dp_plural(most), parts);
    }
    return dp_model_cut(model, parts);
}

dp_status dp_run_make_model(const struct dp_config *config, struct dp_model **out)
{
    const struct dp_model_config *c = &config->model;
    struct dp_model *model = NULL;
    dp_status status;

    DP_TRY(dp_model_create(c->layers, c->layer_count, &c->input, &model));
    status = dp_model_set_loss(model, (enum dp_loss_kind)config->train.loss,
                               config->train.label_smoothing);
    status = status == DP_OK ? cut(config, model) : status;
    if (status != DP_OK) {
        dp_model_destroy(model);
        return status;
    }
    *out = model;
    return DP_OK;
}

/* Bytes of a rank's activations, wherever they are. */
static size_t activations(const struct dp_memory_plan *plan)
{
    return dp_memory_plan_activations(plan, (size_t)plan->config->train.micro_batch);
}

dp_status dp_recompute_choose(const struct dp_memory_plan *plan, struct dp_model *model,
                              dp_recompute_fits *fits, const void *context)
{
    size_t least = SIZE_MAX;
    int most, best = 1;

    DP_TRY(dp_model_parts_most(model, &most));
    for (int parts = 1; parts <= most && parts <= DP_RECOMPUTE_MOST; parts++) {
        DP_TRY(dp_model_cut(model, parts));
        if (fits(context, plan)) {
            return DP_OK;
        }
        if (activations(plan) < least) {
            least = activations(plan);
            best = parts;
        }
    }
    return dp_model_cut(model, best);
}

dp_status dp_recompute_describe(const struct dp_memory_plan *plan, struct dp_model *model,
                                char text[DP_RECOMPUTE_TEXT])
{
    const int parts = dp_model_parts(model);
    const double with = (double)activations(plan), more = 100.0 * dp_model_again(model);
    double without;

    DP_TRY(dp_model_cut(model, 1));
    without = (double)activations(plan);
    (void)snprintf(text, DP_RECOMPUTE_TEXT,
                   "%d part%s: activations take %.1f MB a rank, %s %.1f; %.1f %% more FLOPs", parts,
                   dp_plural(parts), with / 1048576.0,
                   with < without ? "not"
                   : parts == 1   ? "as"
                                  : "NO LESS than",
                   without / 1048576.0, more);
    return dp_model_cut(model, parts);
}
