#define ZLIB_CONST
#include "runtime/data/formats/idx.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/files/file.h"
#include "base/mem.h"

enum {
    BUFFER_BYTES = 1 << 16,
    ANY_GZIP = 16 + MAX_WBITS, /* inflateInit2: gzip only, any window */
    INFLATE_MAX_RATIO = 1032   /* no deflate stream makes more out of a byte (zlib.net) */
};

struct dp_idx {
    char *name; /* owned */
    struct dp_idx_header header;
    int file;             /* -1: in memory */
    uint8_t *buffer;      /* owned; [BUFFER_BYTES]; NULL: in memory */
    const uint8_t *next;  /* raw bytes that were read and not yet used */
    size_t left;          /* of them */
    uint64_t raw_bytes;   /* read from the file so far */
    uint64_t length;      /* of the file */
    uint64_t given_bytes; /* plain bytes handed out so far, header included */
    bool gzip;
    bool ended;      /* the last gzip member is complete */
    bool has_stream; /* `stream` must be released */
    z_stream stream;
};

/* zlib takes its memory where we take ours, so that it is counted and can be made to fail. */
static void *zlib_alloc(void *opaque, unsigned count, unsigned size)
{
    (void)opaque;
    return dp_zalloc(count, size);
}

static void zlib_free(void *opaque, void *memory)
{
    (void)opaque;
    dp_free(memory);
}

static unsigned long long raw_position(const struct dp_idx *idx)
{
    return idx->raw_bytes - idx->left;
}

/* Reads on when the raw bytes are used up; `left` stays 0 at the end of the file. */
static dp_status refill(struct dp_idx *idx)
{
    if (idx->left > 0 || idx->file < 0) {
        return DP_OK;
    }
    idx->next = idx->buffer;
    while (idx->left < BUFFER_BYTES) {
        const ssize_t got = read(idx->file, idx->buffer + idx->left, BUFFER_BYTES - idx->left);
        if (got == 0) {
            break;
        }
        if (got > 0) {
            idx->left += (size_t)got;
        } else if (errno != EINTR) {
            return DP_FAIL(DP_ERR_NOINPUT, "%s: cannot be read: %s", idx->name, strerror(errno));
        }
    }
    idx->raw_bytes += idx->left;
    return DP_OK;
}

static dp_status pull_plain(struct dp_idx *idx, uint8_t *out, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        size_t part;

        DP_TRY(refill(idx));
        if (idx->left == 0) {
            break;
        }
        part = bytes - *got < idx->left ? bytes - *got : idx->left;
        memcpy(out + *got, idx->next, part);
        idx->next += part;
        idx->left -= part;
        *got += part;
    }
    return DP_OK;
}

/* One call of inflate on what is buffered, for at most `bytes` bytes. */
static dp_status inflate_some(struct dp_idx *idx, uint8_t *out, size_t bytes, size_t *got)
{
    z_stream *z = &idx->stream;
    const size_t chunk = (size_t)1 << 30; /* zlib counts in 32 bits */
    const size_t room = bytes < chunk ? bytes : chunk;
    const size_t raw = idx->left < chunk ? idx->left : chunk;
    int result;

    z->next_in = idx->next;
    z->avail_in = (unsigned)raw;
    z->next_out = out;
    z->avail_out = (unsigned)room;
    result = inflate(z, Z_NO_FLUSH);
    idx->next += raw - z->avail_in;
    idx->left -= raw - z->avail_in;
    *got = room - z->avail_out;
    if (result == Z_MEM_ERROR) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: inflating", idx->name);
    }
    idx->ended = result == Z_STREAM_END;
    if (result != Z_OK && result != Z_STREAM_END) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: damaged before byte %llu of the file (zlib: %s): fetch it "
                       "again",
                       idx->name, raw_position(idx), z->msg != NULL ? z->msg : "no reason");
    }
    return DP_OK;
}

static dp_status pull_gzip(struct dp_idx *idx, uint8_t *out, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        size_t part;

        DP_TRY(refill(idx));
        if (idx->left == 0 && idx->ended) {
            break;
        }
        if (idx->left == 0) {
            return DP_FAIL(DP_ERR_DATA,
                           "%s: ends after %llu bytes in the middle of the compressed "
                           "data: it is truncated, fetch it again",
                           idx->name, raw_position(idx));
        }
        if (idx->ended) { /* what follows must be another member */
            (void)inflateReset(&idx->stream);
        }
        DP_TRY(inflate_some(idx, out + *got, bytes - *got, &part));
        *got += part;
    }
    return DP_OK;
}

/* Up to `bytes` plain bytes: fewer only where the file ends, whole. */
static dp_status pull(struct dp_idx *idx, uint8_t *out, size_t bytes, size_t *got)
{
    DP_TRY(idx->gzip ? pull_gzip(idx, out, bytes, got) : pull_plain(idx, out, bytes, got));
    idx->given_bytes += *got;
    return DP_OK;
}

dp_status dp_idx_read(struct dp_idx *idx, void *out, size_t bytes)
{
    size_t got;

    DP_TRY(pull(idx, out, bytes, &got));
    if (got < bytes) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: ends after %llu bytes%s, %zu too early: it is truncated, "
                       "fetch it again",
                       idx->name, (unsigned long long)idx->given_bytes,
                       idx->gzip ? " of plain data" : "", bytes - got);
    }
    return DP_OK;
}

dp_status dp_idx_finish(struct dp_idx *idx)
{
    uint8_t more;
    size_t got;

    DP_TRY(pull(idx, &more, 1, &got));
    if (got > 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: goes on after the %llu bytes its header speaks of: fetch "
                       "it again",
                       idx->name, (unsigned long long)(idx->given_bytes - got));
    }
    return DP_OK;
}

/* Looks at the first two bytes, and prepares zlib when they are gzip's. */
static dp_status detect_gzip(struct dp_idx *idx)
{
    int result;

    DP_TRY(refill(idx));
    if (idx->left == 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: is empty: fetch it again", idx->name);
    }
    idx->gzip = idx->left >= 2 && idx->next[0] == 0x1f && idx->next[1] == 0x8b;
    if (!idx->gzip) {
        return DP_OK;
    }
    idx->stream.zalloc = zlib_alloc;
    idx->stream.zfree = zlib_free;
    result = inflateInit2(&idx->stream, ANY_GZIP);
    if (result != Z_OK) {
        return DP_FAIL(result == Z_MEM_ERROR ? DP_ERR_NOMEM : DP_ERR_INTERNAL,
                       "%s: preparing zlib: %s", idx->name, zError(result));
    }
    idx->has_stream = true;
    return DP_OK;
}

static size_t big_endian(const uint8_t bytes[4])
{
    return (size_t)bytes[0] << 24 | (size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3];
}

/* factor times value, or false when that does not fit. */
static bool multiply(size_t *value, size_t factor)
{
    if (factor != 0 && *value > SIZE_MAX / factor) {
        return false;
    }
    *value *= factor;
    return true;
}

static dp_status read_header(struct dp_idx *idx)
{
    struct dp_idx_header *h = &idx->header;
    uint8_t bytes[4];
    size_t all;

    DP_TRY(dp_idx_read(idx, bytes, 4));
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] < 1 || bytes[3] > DP_IDX_DIMS) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: begins with 0x%08zx, not with 0x0801 to 0x0804 as IDX "
                       "files of bytes do: it is damaged, or of another format",
                       idx->name, big_endian(bytes));
    }
    h->dims = bytes[3];
    h->row_bytes = 1;
    for (int i = 0; i < h->dims; i++) {
        DP_TRY(dp_idx_read(idx, bytes, 4));
        h->dim[i] = big_endian(bytes);
        if (i > 0 && !multiply(&h->row_bytes, h->dim[i])) {
            return DP_FAIL(DP_ERR_DATA, "%s: has impossible dimensions: it is damaged", idx->name);
        }
    }
    h->rows = h->dim[0];
    all = h->row_bytes;
    if (!multiply(&all, h->rows) || all > SIZE_MAX / 2) {
        return DP_FAIL(DP_ERR_DATA, "%s: has impossible dimensions: it is damaged", idx->name);
    }
    return DP_OK;
}

/* Compares the file's length with what the header promises; with gzip that is a lower bound. */
static dp_status check_length(const struct dp_idx *idx)
{
    const struct dp_idx_header *h = &idx->header;
    const uint64_t whole = 4 + 4 * (uint64_t)h->dims + (uint64_t)h->rows * h->row_bytes;
    const bool too_short =
        idx->gzip ? idx->length < whole / INFLATE_MAX_RATIO : idx->length < whole;

    if (too_short) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %llu bytes%s, but its header speaks of %llu: it is "
                       "truncated, fetch it again",
                       idx->name, (unsigned long long)idx->length, idx->gzip ? " compressed" : "",
                       (unsigned long long)whole);
    }
    if (!idx->gzip && idx->length > whole) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %llu bytes, but its header speaks of %llu: fetch it "
                       "again",
                       idx->name, (unsigned long long)idx->length, (unsigned long long)whole);
    }
    return DP_OK;
}

static struct dp_idx *idx_new(const char *name)
{
    struct dp_idx *idx = dp_zalloc(1, sizeof(*idx));

    if (idx == NULL) {
        return NULL;
    }
    idx->file = -1;
    idx->name = dp_strdup(name);
    if (idx->name == NULL) {
        dp_free(idx);
        return NULL;
    }
    return idx;
}

static dp_status open_file(struct dp_idx *idx)
{
    size_t length = 0;

    DP_TRY(dp_file_open(idx->name, &idx->file, &length));
    idx->length = length;
    idx->buffer = dp_mem_arena(DP_MEM_DATA, BUFFER_BYTES);
    if (idx->buffer == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: buffer for reading", idx->name);
    }
    return DP_OK;
}

/* The end of both ways to create; destroys `idx` on failure. */
static dp_status begin(struct dp_idx *idx, struct dp_idx **out)
{
    dp_status status;

    DP_TRY_GOTO(detect_gzip(idx), status, failed);
    DP_TRY_GOTO(read_header(idx), status, failed);
    DP_TRY_GOTO(check_length(idx), status, failed);
    *out = idx;
    return DP_OK;

failed:
    dp_idx_destroy(idx);
    return status;
}

dp_status dp_idx_create(const char *path, struct dp_idx **out)
{
    struct dp_idx *idx = idx_new(path);
    dp_status status;

    if (idx == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: reader", path);
    }
    DP_TRY_GOTO(open_file(idx), status, failed);
    return begin(idx, out);

failed:
    dp_idx_destroy(idx);
    return status;
}

dp_status dp_idx_create_memory(const void *file, size_t bytes, const char *name,
                               struct dp_idx **out)
{
    struct dp_idx *idx = idx_new(name);

    if (idx == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: reader", name);
    }
    idx->next = file;
    idx->left = bytes;
    idx->raw_bytes = bytes;
    idx->length = bytes;
    return begin(idx, out);
}

const struct dp_idx_header *dp_idx_header(const struct dp_idx *idx)
{
    return &idx->header;
}

const char *dp_idx_name(const struct dp_idx *idx)
{
    return idx->name;
}

void dp_idx_destroy(struct dp_idx *idx)
{
    if (idx == NULL) {
        return;
    }
    if (idx->has_stream) {
        (void)inflateEnd(&idx->stream);
    }
    if (idx->file >= 0) {
        (void)close(idx->file);
    }
    dp_free(idx->buffer);
    dp_free(idx->name);
    dp_free(idx);
}
