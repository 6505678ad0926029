/*
 * fuzz_csv.c - libFuzzer: whatever a line holds, reading it ends, with a status, inside its memory
 * and that of the numbers.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_csv.c runtime/data/{csv,problem}.c base/{mem,log,status,text}.c -o fuzz_csv
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte says where the label is; the rest are lines. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool label_last = size > 0 && data[0] % 2 == 1;
    const char *line = (const char *)data + (size > 0), *end = (const char *)data + size;
    struct dp_csv_form form = {0};
    struct dp_problem problem;
    float *numbers = NULL;
    double label;

    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const size_t length = (size_t)((stop != NULL ? stop : end) - line);
        if (numbers == NULL) { /* the first line */
            form = dp_csv_form_of(line, length, label_last);
            (void)dp_csv_is_header(&form, line, length);
            /* No more than there are: a write beyond is found. */
            numbers = malloc(form.fields > 1 ? (form.fields - 1) * sizeof(*numbers) : 1);
            if (numbers == NULL || form.fields == 0) {
                break;
            }
        }
        memset(&problem, 0, sizeof(problem));
        (void)!dp_csv_read(&form, line, length, numbers, &label, &problem);
        line += length + 1;
    }
    free(numbers);
    return 0;
}
