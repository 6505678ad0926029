#include "runtime/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/files/file.h"
#include "base/mem.h"
#include "base/trace.h"

enum {
    NAME_BYTES = 64,
    HASH_CHARS = DP_HASH_TEXT - 1,
    READ_BYTES = 256 * 1024,
    MANIFEST_MOST = 64 * 1024,
    LIST_BYTES = 4096 /* more than dp_manifest_write() writes */
};

/* Feeds an open file to `state`. */
static dp_status hash_content(int fd, const char *path, XXH3_state_t *state)
{
    unsigned char *block = dp_zalloc(1, READ_BYTES);
    dp_status status = DP_OK;
    size_t got = READ_BYTES;

    if (block == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: reading", path);
    }
    while (status == DP_OK && got == READ_BYTES) {
        status = dp_file_take(fd, path, block, READ_BYTES, &got);
        (void)XXH3_128bits_update(state, block, got); /* fails only for a NULL block */
        dp_trace_beat();
    }
    dp_free(block);
    return status;
}

/* The XXH3-128 hash of a file, as xxhsum prints it. A missing file counts as torn. */
static dp_status hash_file(const char *path, char hex[DP_HASH_TEXT])
{
    XXH3_state_t *state = XXH3_createState();
    size_t bytes;
    dp_status status = state != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "%s: hash", path);
    int fd = -1;

    if (status == DP_OK) {
        status = dp_file_open(path, &fd, &bytes);
    }
    if (status == DP_OK) {
        (void)XXH3_128bits_reset(state);
        status = hash_content(fd, path, state);
        (void)close(fd);
        dp_hash_print(state, hex);
    }
    (void)XXH3_freeState(state);
    return status == DP_ERR_NOINPUT ? DP_ERR_DATA : status;
}

dp_status dp_manifest_write(const char *folder, const char *const *names,
                            char (*hashes)[DP_HASH_TEXT], int count)
{
    const size_t size = (size_t)count * (DP_HASH_TEXT + NAME_BYTES);
    char path[DP_PATH_BYTES], *text = NULL;
    dp_status status;
    size_t used = 0;

    DP_TRY(dp_file_join(path, folder, DP_MANIFEST));
    text = dp_zalloc(1, size);
    if (text == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s", path);
    }
    for (int i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s  %s\n", hashes[i], names[i]);
    }
    status = dp_file_save(path, text, used, NULL);
    dp_free(text);
    return status;
}

static dp_status verify_file(const char *folder, const char *name, const char *expected)
{
    char path[DP_PATH_BYTES], hex[DP_HASH_TEXT] = "";

    DP_TRY(dp_file_join(path, folder, name));
    DP_TRY(hash_file(path, hex));
    if (memcmp(hex, expected, HASH_CHARS) != 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "checkpoint %s: %s does not match " DP_MANIFEST
                       ", it is torn or was altered",
                       folder, name);
    }
    return DP_OK;
}

/* The hash in front of "  NAME\n", or NULL when no line has this name. */
static const char *manifest_hash(const char *manifest, const char *name)
{
    char ending[NAME_BYTES];
    const size_t length = (size_t)snprintf(ending, sizeof(ending), "  %s\n", name);

    for (const char *line = manifest; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');

        if (strspn(line, "0123456789abcdef") == HASH_CHARS &&
            strncmp(line + HASH_CHARS, ending, length) == 0) {
            return line;
        }
        line = end == NULL ? NULL : end + 1;
    }
    return NULL;
}

dp_status dp_manifest_verify(const char *folder, const char *const *names, int count)
{
    char file[DP_PATH_BYTES], *manifest = NULL;
    size_t bytes = 0;
    dp_status status;

    DP_TRY(dp_file_join(file, folder, DP_MANIFEST));
    status = dp_file_read(file, MANIFEST_MOST, &manifest, &bytes);
    if (status != DP_OK) {
        return status == DP_ERR_NOINPUT ? DP_ERR_DATA : status; /* the folder exists: torn */
    }
    for (int i = 0; i < count && status == DP_OK; i++) {
        const char *expected = manifest_hash(manifest, names[i]);

        status = expected != NULL
                     ? verify_file(folder, names[i], expected)
                     : DP_FAIL(DP_ERR_DATA, "%s: no line for %s: torn", file, names[i]);
    }
    dp_free(manifest);
    return status;
}

bool dp_manifest_lists(const char *folder, const char *const *names, int count)
{
    const int at = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int fd =
        at < 0 ? -1 : openat(at, DP_MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char text[LIST_BYTES] = "";
    bool lists = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0;

    for (int i = 0; i < count && lists; i++) {
        lists = manifest_hash(text, names[i]) != NULL;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (at >= 0) {
        (void)close(at);
    }
    return lists;
}
