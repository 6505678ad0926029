/*
 * fuzz_csv.c - libFuzzer: whatever a line holds, reading it ends, with a status, inside its memory
 * and that of the numbers; and where lines lie does not depend on how the file is read.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_csv.c runtime/data/{csv,csv_index,problem}.c base/{mem,log,status,text}.c
 *     -o fuzz_csv
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/formats/csv.h"
#include "runtime/data/formats/csv_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads a file in pieces. False: it is refused. */
static bool index_of(struct dp_csv_index *index, const char *text, size_t size, size_t piece)
{
    struct dp_problem problem;
    dp_status status = DP_OK;

    for (size_t at = 0; at < size && status == DP_OK; at += piece) {
        status =
            dp_csv_index_take(index, text + at, size - at < piece ? size - at : piece, &problem);
    }
    return status == DP_OK && dp_csv_index_finish(index, &problem) == DP_OK;
}

static void try_index(const char *text, size_t size, size_t piece)
{
    struct dp_csv_index whole = {.lines = 0}, pieces = {.lines = 0};
    const bool good = index_of(&whole, text, size, size + 1);

    if (good != index_of(&pieces, text, size, piece) ||
        (good && (whole.lines != pieces.lines || whole.end != pieces.end || whole.end > size ||
                  whole.count != pieces.count))) {
        abort();
    }
    dp_csv_index_release(&whole);
    dp_csv_index_release(&pieces);
}

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
            (void)dp_csv_counts_up(&form, line, length);
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
    if (size > 1) {
        try_index((const char *)data + 1, size - 1, 1 + data[0] % 7u);
    }
    return 0;
}
