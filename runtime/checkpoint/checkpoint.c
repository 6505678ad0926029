#include "runtime/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/file.h"
#include "base/mem.h"
#include "runtime/checkpoint/manifest.h"

enum { STATE_MOST = 1 << 24 };

const char *const dp_checkpoint_files[DP_CHECKPOINT_FILES] = {
    "model.safetensors", "optimizer.safetensors", "state.json", DP_MANIFEST};

static const char *const *const content = dp_checkpoint_files;

dp_status dp_checkpoint_open(const char *path, uint64_t *step, struct dp_json **state)
{
    char file[DP_PATH_BYTES], *text = NULL;
    struct dp_json *read = NULL;
    const char *schema;
    int64_t number = 0;
    size_t bytes = 0;
    dp_status status;

    DP_TRY(dp_file_join(file, path, content[2]));
    DP_TRY(dp_file_read(file, STATE_MOST, &text, &bytes));
    status = dp_json_parse(text, bytes, file, &read);
    dp_free(text);
    DP_TRY(status);
    schema = dp_json_text(dp_json_get(read, "schema"));
    if (schema != NULL && strcmp(schema, DP_CHECKPOINT_SCHEMA) == 0 &&
        dp_json_int(dp_json_get(read, "step"), &number) && number >= 0) {
        *state = read;
        *step = (uint64_t)number;
        return DP_OK;
    }
    status = DP_FAIL(DP_ERR_DATA, "%s: not of schema " DP_CHECKPOINT_SCHEMA ": %s", file,
                     schema == NULL ? "none is named" : schema);
    dp_json_destroy(read);
    return status;
}

/* Hashes do not show that the content is of another step than the folder's name says. */
static dp_status verify_step(const char *path)
{
    struct dp_json *state = NULL;
    const struct dp_json *kept;
    uint64_t step = 0;
    int64_t number = -1;
    bool one;

    DP_TRY(dp_checkpoint_open(path, &step, &state));
    kept = dp_json_get(state, "kept");
    one = kept == NULL ||
          (dp_json_int(dp_json_get(kept, "step"), &number) && number == (int64_t)step);
    dp_json_destroy(state);
    return one ? DP_OK
               : DP_FAIL(DP_ERR_DATA,
                         "checkpoint %s: state.json is of step %" PRIu64
                         ", but its content is of step %" PRId64,
                         path, step, number);
}

dp_status dp_checkpoint_verify(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: no checkpoint is there", path);
    }
    DP_TRY(dp_manifest_verify(path, content, DP_CHECKPOINT_CONTENT));
    return verify_step(path);
}

dp_status dp_checkpoint_load(const char *path, struct dp_weights *weights,
                             const struct dp_slot *slots, int slot_count, struct dp_loose *loose)
{
    char file[DP_PATH_BYTES];

    DP_TRY(dp_file_join(file, path, content[0]));
    DP_TRY(dp_weights_load(file, weights));
    DP_TRY(dp_file_join(file, path, content[1]));
    return dp_slots_load(file, weights->params, weights->param_count, slots, slot_count, loose);
}
