/*
 * fuzz_safetensors.c - libFuzzer feeds the safetensors reader; whatever it accepts must be readable
 * to the last byte.
 *
 * clang -g -O1 -fsanitize=fuzzer,address,undefined ...
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dp_safetensors *file = NULL;
    size_t covered = 0;
    unsigned sum = 0;

    dp_log_set_level(DP_LOG_NONE);
    if (dp_safetensors_parse(data, size, "fuzz", &file) != DP_OK) {
        return 0;
    }
    for (int i = 0; i < dp_safetensors_count(file); i++) {
        const struct dp_stored *tensor = dp_safetensors_at(file, i);
        const uint8_t *bytes = tensor->data;

        for (size_t k = 0; k < tensor->bytes; k++) {
            sum += bytes[k];
        }
        covered += tensor->bytes;
        if (dp_safetensors_find(file, tensor->name) != tensor || strlen(tensor->type) == 0) {
            abort();
        }
    }
    if (covered > size || sum > 255u * size) {
        abort();
    }
    dp_safetensors_close(file);
    return 0;
}
