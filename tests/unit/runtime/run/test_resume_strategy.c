/* test_resume_strategy.c - a resumed run uses the strategy that `auto` had chosen, if it can
 * run. */
#include <inttypes.h>
#include <xxhash.h>

#include "base/mem.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "tests/support/stderr_text.h"
#include "tests/support/whole_run.h"

/* Puts another strategy into a checkpoint. */
static void set_strategy(const char *checkpoint, const char *strategy)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    char path[512], hashes[3][DP_HASH_TEXT];
    struct dp_json *json = NULL;
    uint64_t step = 0;

    (void)snprintf(path, sizeof(path), "%s/state.json", checkpoint);
    assert_int_equal(dp_checkpoint_open(checkpoint, &step, &json), DP_OK);
    assert_int_equal(dp_json_set_text(json, "strategy", strategy), DP_OK);
    assert_int_equal(dp_json_save(json, DP_JSON_EXACT, path), DP_OK);
    dp_json_destroy(json);
    for (int i = 0; i < 3; i++) {
        char *text = NULL;
        size_t bytes = 0;
        (void)snprintf(path, sizeof(path), "%s/%s", checkpoint, files[i]);
        assert_int_equal(dp_file_read(path, 1 << 24, &text, &bytes), DP_OK);
        const XXH128_hash_t hash = XXH3_128bits(text, bytes);
        dp_free(text);
        (void)snprintf(hashes[i], sizeof(hashes[i]), "%016" PRIx64 "%016" PRIx64,
                       (uint64_t)hash.high64, (uint64_t)hash.low64);
    }
    assert_int_equal(dp_manifest_write(checkpoint, files, hashes, 3), DP_OK);
}

static void a_strategy_that_cannot_run_is_not_resumed(void **state)
{
    char path[256], lengthy[300];
    const char *const strategies[] = {"ring:over=nothing", "none:of=these", lengthy};
    struct dp_run_options options = options_of("out", 3, NULL);
    (void)state;

    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    assert_int_equal(whole_run(&options), DP_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/step-00000003"));
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        char out[32];
        dp_status status;
        (void)snprintf(out, sizeof(out), "out-%zu", i);
        set_strategy(path, strategies[i]);
        options = options_of(out, 4, path);
        stderr_begin();
        status = whole_run(&options);
        stderr_end();
        assert_int_equal(status, DP_OK);
        assert_non_null(strstr(stderr_text, "warning: comm.strategy auto chooses anew"));
        assert_null(strstr(stderr_text, "error: "));
    }
}

static void a_strategy_chosen_for_other_options_is_ignored(void **state)
{
    static const char *const sets[] = {"comm.bucket_mb=3", "comm.first_bucket_mb=2",
                                       "comm.compressor=fp16"};
    struct dp_run_options options = options_of("out", 3, NULL);
    char path[256];
    (void)state;

    assert_int_equal(whole_run(&options), DP_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_path("out/checkpoints/step-00000003"));
    set_strategy(path, "ring:over=nothing");
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        char out[32];
        dp_status status;
        (void)snprintf(out, sizeof(out), "out-%zu", i);
        options = options_of(out, 4, path);
        options.sets[options.set_count++] = sets[i];
        stderr_begin();
        status = whole_run(&options);
        stderr_end();
        assert_int_equal(status, DP_OK);
        assert_null(strstr(stderr_text, "comm.strategy auto chooses anew"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_strategy_chosen_for_other_options_is_ignored,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_strategy_that_cannot_run_is_not_resumed,
                                        scratch_create_fast, scratch_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
