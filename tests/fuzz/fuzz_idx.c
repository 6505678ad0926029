/*
 * fuzz_idx.c - libFuzzer: whatever bytes a file holds, reading it ends, with a status, inside its
 * memory.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_idx.c runtime/data/formats/idx.c base/mem.c base/log.c base/status.c -lz \
 *     -o fuzz_idx
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/formats/idx.h"

/* A gzip bomb is read no further than this. */
enum { READ_MOST = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all of the elements in pieces whose sizes come from the file itself. */
static void read_all(struct dp_idx *idx)
{
    static uint8_t piece[4096];
    const struct dp_idx_header *header = dp_idx_header(idx);
    size_t left = header->rows * header->row_bytes, done = 0;

    while (left > 0 && done < READ_MOST) {
        const size_t wanted = 1 + (done * 31 + header->rows) % sizeof(piece);
        const size_t bytes = wanted < left ? wanted : left;
        if (dp_idx_read(idx, piece, bytes) != DP_OK) {
            return;
        }
        left -= bytes;
        done += bytes;
    }
    if (left == 0 && dp_idx_finish(idx) != DP_OK) {
        return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dp_idx *idx = NULL;

    dp_log_set_level(DP_LOG_NONE);
    if (dp_idx_create_memory(data, size, "fuzz", &idx) == DP_OK) {
        read_all(idx);
        dp_idx_destroy(idx);
    }
    if (dp_mem_live() != 0) {
        abort(); /* something was left behind */
    }
    return 0;
}
