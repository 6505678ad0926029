#include "runtime/run/run_model.h"

dp_status dp_run_make_model(const struct dp_config *config, struct dp_model **out)
{
    const struct dp_model_config *c = &config->model;
    struct dp_model *model = NULL;
    dp_status status;

    DP_TRY(dp_model_create(c->layers, c->layer_count, &c->input, &model));
    status = dp_model_set_loss(model, (enum dp_loss_kind)config->train.loss,
                               config->train.label_smoothing);
    if (status != DP_OK) {
        dp_model_destroy(model);
        return status;
    }
    *out = model;
    return DP_OK;
}
