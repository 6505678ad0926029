/*
 * edited_checkpoint.h - for tests: a checkpoint from which one thing has been taken out.
 *
 * A name is taken out by writing '#' over its first letter, so that nothing else moves. MANIFEST is
 * written anew, so that the checkpoint is whole.
 *
 * Header only; after <cmocka.h> and what it wants.
 */
#ifndef DP_TESTS_SUPPORT_FILES_EDITED_CHECKPOINT_H
#define DP_TESTS_SUPPORT_FILES_EDITED_CHECKPOINT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/files/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"

enum { MODEL_FILE, OPTIMIZER_FILE, STATE_FILE }; /* indices of dp_checkpoint_files */
enum { CHECKPOINT_BYTES_MOST = 1 << 24 };

/* The files of a checkpoint, but for MANIFEST. */
struct checkpoint_bytes {
    char *data[DP_CHECKPOINT_CONTENT];
    size_t count[DP_CHECKPOINT_CONTENT];
};

static inline void checkpoint_read(const char *folder, struct checkpoint_bytes *c)
{
    char path[DP_PATH_BYTES];

    for (int i = 0; i < DP_CHECKPOINT_CONTENT; i++) {
        assert_int_equal(dp_file_join(path, folder, dp_checkpoint_files[i]), DP_OK);
        assert_int_equal(dp_file_read(path, CHECKPOINT_BYTES_MOST, &c->data[i], &c->count[i]),
                         DP_OK);
    }
}

/* Replaces the files of a checkpoint. */
static inline void checkpoint_write(const char *folder, const struct checkpoint_bytes *c)
{
    char path[DP_PATH_BYTES], hashes[DP_CHECKPOINT_CONTENT][DP_HASH_TEXT];

    for (int i = 0; i < DP_CHECKPOINT_CONTENT; i++) {
        assert_int_equal(dp_file_join(path, folder, dp_checkpoint_files[i]), DP_OK);
        assert_int_equal(dp_file_save(path, c->data[i], c->count[i], hashes[i]), DP_OK);
    }
    assert_int_equal(dp_manifest_write(folder, dp_checkpoint_files, hashes, DP_CHECKPOINT_CONTENT),
                     DP_OK);
}

static inline void checkpoint_release(struct checkpoint_bytes *c)
{
    for (int i = 0; i < DP_CHECKPOINT_CONTENT; i++) {
        dp_free(c->data[i]);
    }
}

/* Adds a row to state.json that nothing reads. */
static inline void checkpoint_add_row(struct checkpoint_bytes *c, const char *name)
{
    static const char rows[] = "\"kept\": {";
    char *text = c->data[STATE_FILE], *at = strstr(text, rows), *more;
    const size_t size = c->count[STATE_FILE] + strlen(name) + 16;
    int length;

    assert_non_null(at);
    at += strlen(rows);
    more = dp_zalloc(size, 1);
    assert_non_null(more);
    length = snprintf(more, size, "%.*s\"%s\": 1,%s", (int)(at - text), text, name, at);
    assert_true(length > 0 && (size_t)length < size);
    dp_free(text);
    c->data[STATE_FILE] = more;
    c->count[STATE_FILE] = (size_t)length;
}

/* Takes out the first `"name"` of a text. */
static inline void checkpoint_drop(char *text, const char *name)
{
    char quoted[128];
    char *at;

    assert_non_null(text);
    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    at = strstr(text, quoted);
    assert_non_null(at);
    at[1] = '#';
}

static inline void checkpoint_drop_row(struct checkpoint_bytes *c, const char *name)
{
    checkpoint_drop(strstr(c->data[STATE_FILE], "\"kept\""), name);
}

static inline void checkpoint_drop_tensor(struct checkpoint_bytes *c, int file, const char *name)
{
    checkpoint_drop(c->data[file] + 8, name); /* after the header's length */
}

/* Sets a tensor to zeros. */
static inline void checkpoint_zero_tensor(struct checkpoint_bytes *c, int file, const char *name)
{
    struct dp_safetensors *tensors = NULL;
    const struct dp_stored *found;

    assert_int_equal(dp_safetensors_parse(c->data[file], c->count[file], "test", &tensors), DP_OK);
    found = dp_safetensors_find(tensors, name);
    assert_non_null(found);
    memset(c->data[file] + ((const char *)found->data - c->data[file]), 0, found->bytes);
    dp_safetensors_close(tensors);
}

#endif
