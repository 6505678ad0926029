/*
 * fuzz_cifar10.c - libFuzzer: whatever batches.meta.txt holds, it is ten names that can be printed,
 * or refused with a text.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_cifar10.c runtime/data/{cifar10,problem}.c base/{mem,log,status,text}.c
 *     -o fuzz_cifar10
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/data/formats/cifar10.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char names[DP_CIFAR10_CLASSES][DP_CIFAR10_NAME];
    struct dp_problem problem = {.text = ""};

    if (dp_cifar10_names((const char *)data, size, names, &problem) != DP_OK) {
        if (problem.text[0] == '\0') {
            abort(); /* nothing says why */
        }
        return 0;
    }
    for (int i = 0; i < DP_CIFAR10_CLASSES; i++) {
        char clean[4 * DP_CIFAR10_NAME];
        (void)dp_text_clean(names[i], clean, sizeof(clean));
        if (names[i][0] == '\0' || strcmp(names[i], clean) != 0) {
            abort(); /* a terminal would obey it */
        }
    }
    return 0;
}
