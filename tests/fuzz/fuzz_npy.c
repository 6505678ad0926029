/*
 * fuzz_npy.c - libFuzzer: whatever bytes a file holds, its header is taken or refused inside its
 * memory, and what is taken says where elements are that the file has.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_npy.c runtime/data/{npy,problem}.c base/{mem,log,status,text}.c -o fuzz_npy
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/formats/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t count = size < DP_NPY_HEAD ? size : DP_NPY_HEAD;
    struct dp_problem problem = {0};
    struct dp_npy npy;
    char text[16];
    size_t elements;

    if (dp_npy_parse(data, count, size, &npy, &problem) != DP_OK) {
        return 0;
    }
    elements = npy.rows * npy.count;
    if (npy.begin > size || elements * npy.width != size - npy.begin) {
        abort(); /* elements where the file has none */
    }
    dp_npy_type_text(&npy, text);
    if (strlen(text) >= sizeof(text)) {
        abort();
    }
    for (size_t i = 0; i < elements && i < 4096; i++) {
        (void)dp_npy_number(&npy, data + npy.begin, i);
    }
    return 0;
}
