#include "runtime/run/use/saved_run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "runtime/config/config_load.h"
#include "runtime/run/run_model.h"

/* The path of config.yaml for RUN/checkpoints/NAME. A relative path may not name RUN. */
static dp_status find_config(const char *checkpoint, char config[DP_PATH_BYTES])
{
    char run[DP_PATH_BYTES], *slash = NULL;

    (void)snprintf(run, sizeof(run), "%s", checkpoint);
    for (int i = 0; i < 2; i++) {
        slash = strrchr(run, '/');
        if (slash == NULL || slash == run) {
            return dp_file_join(config, checkpoint, "../../config.yaml");
        }
        *slash = '\0';
    }
    return dp_file_join(config, run, "config.yaml");
}

dp_status dp_saved_run_find(const char *given, const char *config, struct dp_saved_run *out)
{
    DP_TRY(dp_checkpoint_dir_find(given, out->checkpoint, NULL));
    if (config != NULL) {
        if ((size_t)snprintf(out->config, sizeof(out->config), "%s", config) >=
            sizeof(out->config)) {
            return DP_FAIL(DP_ERR_NOINPUT, "%.80s...: the path is too long", config);
        }
    } else {
        DP_TRY(find_config(out->checkpoint, out->config));
        if (access(out->config, R_OK) != 0) {
            return DP_FAIL(DP_ERR_NOINPUT,
                           "%s: cannot be read; it says what model the weights in %s are of: give "
                           "the folder of the whole run",
                           out->config, out->checkpoint);
        }
    }
    return dp_checkpoint_open(out->checkpoint, &out->step, &out->state);
}

void dp_saved_run_release(struct dp_saved_run *saved)
{
    dp_json_destroy(saved->state);
    saved->state = NULL;
}

dp_status dp_saved_run_model(const struct dp_saved_run *saved, const char *device,
                             struct dp_config **config, struct dp_model **model)
{
    char *const nothing[] = {NULL};
    char name[160], *text = NULL;
    const char *const sets[] = {name, "device.conv=auto"};
    struct dp_config *made = NULL;
    dp_status status;

    (void)snprintf(name, sizeof(name), "device.name=%s", device == NULL ? "auto" : device);
    DP_TRY(dp_config_resolve(saved->config, nothing, sets, 2, &text));
    status = dp_config_parse(text, saved->config, &made);
    dp_free(text);
    DP_TRY(status);
    status = dp_run_make_model(made, model);
    if (status != DP_OK) {
        dp_config_destroy(made);
        return status;
    }
    *config = made;
    return DP_OK;
}
