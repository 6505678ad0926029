/*
 * fuzz_config.c - libFuzzer's entry: any bytes as a model.cfg. What is accepted must be accepted
 * again when it is broadcast, and when its text is used as a model.cfg, which gives itself.
 *
 * clang -fsanitize=fuzzer,address,undefined -D_POSIX_C_SOURCE=200809L -I. tests/fuzz/fuzz_config.c
 *     runtime/config/config*.c models/layer*.c base/{option*,plugin,mem,log,status}.c -lyaml -lm
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/config/config.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dp_config *config = NULL;
    char *text = NULL, *again = NULL;
    size_t length;

    dp_log_set_level(DP_LOG_NONE);
    if (dp_config_resolve_text((const char *)data, size, "model.cfg", NULL, NULL, 0, &text) ==
        DP_OK) {
        length = dp_config_text_length(text);
        require(dp_config_parse(text, "model.cfg", &config) == DP_OK);
        require(dp_config_resolve_text(text, length, "model.cfg", NULL, NULL, 0, &again) == DP_OK);
        require(dp_config_text_length(again) == length && memcmp(text, again, length) == 0);
    }
    dp_config_destroy(config);
    dp_free(text);
    dp_free(again);
    require(dp_mem_live() == 0);
    return 0;
}
