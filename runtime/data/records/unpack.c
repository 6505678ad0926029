#include "runtime/data/records/unpack.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "runtime/data/pictures/png.h"

enum { HEADER = 128 };

static const char *const set_names[DP_SETS] = {"train", "test"};

struct unpacker {
    const struct dp_records *records;
    const struct dp_records_index *index;
    bool (*stopped)(void);
    char dir[DP_PATH_BYTES]; /* that is written to */
    struct dp_buffer stored, memory, png;
    /* Of the set at hand. */
    enum dp_set set;
    struct dp_file images, labels; /* of arrays */
    bool open;
};

/* ---- arrays ---- */

/* Writes the header of version 1, padded as numpy pads it. Shape: what stands after the rows. */
static dp_status write_header(struct dp_file *file, const char *type, uint64_t rows,
                              const char *shape)
{
    static const uint8_t magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char text[HEADER + 1];
    const int length = snprintf(text + 10, HEADER - 10,
                                "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,%s), }",
                                type, (unsigned long long)rows, shape);

    memset(text + 10 + length, ' ', (size_t)(HEADER - 10 - length));
    memcpy(text, magic, sizeof(magic));
    dp_shard_put((uint8_t *)text + 8, HEADER - 10, 2);
    text[HEADER - 1] = '\n';
    return dp_file_append(file, text, HEADER);
}

static dp_status begin_arrays(struct unpacker *u, char paths[2][DP_PATH_BYTES])
{
    const struct dp_sample_shape *s = &u->index->shape;
    char shape[64], names[2][32];

    if (s->height > 0) {
        (void)snprintf(shape, sizeof(shape), " %d, %d, %d", s->height, s->width, s->channels);
    } else {
        (void)snprintf(shape, sizeof(shape), " %zu", s->count);
    }
    (void)snprintf(names[0], sizeof(names[0]), "%s_images.npy", set_names[u->set]);
    (void)snprintf(names[1], sizeof(names[1]), "%s_labels.npy", set_names[u->set]);
    DP_TRY(dp_file_join(paths[0], u->dir, names[0]));
    DP_TRY(dp_file_join(paths[1], u->dir, names[1]));
    DP_TRY(dp_file_create(&u->images, paths[0]));
    if (dp_file_create(&u->labels, paths[1]) != DP_OK) {
        dp_file_discard(&u->images);
        return DP_ERR_WRITE;
    }
    u->open = true;
    DP_TRY(write_header(&u->images, s->element == DP_ELEMENT_FLOAT ? "<f4" : "|u1",
                        u->index->count[u->set], shape));
    shape[0] = '\0';
    if (u->index->label_numbers > 1) {
        (void)snprintf(shape, sizeof(shape), " %zu", u->index->label_numbers);
    }
    return write_header(&u->labels, u->index->classes > 0 ? "<i8" : "<f8", u->index->count[u->set],
                        shape);
}

static dp_status append_array(struct unpacker *u, const struct dp_raw *raw)
{
    const size_t numbers = dp_records_form(u->index).label_numbers;
    const double *label = raw->targets != NULL ? raw->targets : &raw->label;
    uint8_t bytes[8];

    for (size_t k = 0; k < numbers; k++) {
        uint64_t bits;
        if (u->index->classes > 0) {
            bits = (uint64_t)(int64_t)raw->label;
        } else {
            memcpy(&bits, &label[k], sizeof(bits));
        }
        dp_shard_put(bytes, bits, 8);
        DP_TRY(dp_file_append(&u->labels, bytes, sizeof(bytes)));
    }
    return dp_file_append(&u->images, raw->data, raw->bytes);
}

static dp_status end_arrays(struct unpacker *u)
{
    u->open = false;
    if (dp_file_finish(&u->images, NULL) != DP_OK) {
        dp_file_discard(&u->labels);
        return DP_ERR_WRITE;
    }
    return dp_file_finish(&u->labels, NULL);
}

/* ---- pictures ---- */

static dp_status make_folder(const char *path)
{
    return dp_disk_mkdir(path) == 0 || errno == EEXIST ? DP_OK : dp_file_fail(path, errno);
}

/* The folder of a class: its name must not lead elsewhere. */
static dp_status class_folder(struct unpacker *u, int label, char *path)
{
    char number[32], set[DP_PATH_BYTES];
    const char *name = number;

    (void)snprintf(number, sizeof(number), "%d", label);
    if (u->index->class_names != NULL) {
        name = u->index->class_names[label];
    }
    if (name[0] == '.' || strchr(name, '/') != NULL) {
        return DP_FAIL(DP_ERR_DATA, "class '%s' cannot be the name of a folder", name);
    }
    DP_TRY(dp_file_join(set, u->dir, set_names[u->set]));
    DP_TRY(make_folder(set));
    DP_TRY(dp_file_join(path, set, name));
    return make_folder(path);
}

static dp_status write_picture(struct unpacker *u, uint64_t row, const struct dp_raw *raw)
{
    char folder[DP_PATH_BYTES], path[DP_PATH_BYTES], name[32];
    const void *data = raw->data;
    size_t bytes = raw->bytes;

    if (raw->kind == DP_RAW_ARRAY) {
        DP_TRY(dp_png_encode(&raw->shape, raw->data, &u->png, &bytes));
        data = u->png.data;
    }
    DP_TRY(class_folder(u, (int)raw->label, folder));
    (void)snprintf(name, sizeof(name), "%08llu.%s", (unsigned long long)row,
                   dp_png_is(data, bytes) ? "png" : "jpg");
    DP_TRY(dp_file_join(path, folder, name));
    return dp_file_save(path, data, bytes, NULL);
}

/* ---- all of it ---- */

static dp_status unpack_sample(struct unpacker *u, uint64_t row, const struct dp_raw *raw)
{
    const int classes = u->index->classes;
    char name[DP_PATH_BYTES];

    if (classes > 0 &&
        !(raw->label >= 0.0 && raw->label < (double)classes && raw->label == floor(raw->label))) {
        dp_records_name(u->records, u->set, row, name, sizeof(name));
        return DP_FAIL(DP_ERR_DATA, "%s: label %.17g is not one of 0 to %d", name, raw->label,
                       classes - 1);
    }
    return u->index->kind == DP_RECORDS_ARRAYS ? append_array(u, raw) : write_picture(u, row, raw);
}

static dp_status unpack_set(struct unpacker *u)
{
    const size_t blocks = dp_records_blocks(u->records, u->set);

    for (size_t i = 0; i < blocks; i++) {
        const struct dp_records_block *block = dp_records_block(u->records, u->set, i);
        struct dp_block_view view;
        if (u->stopped != NULL && u->stopped()) {
            return DP_STOPPED;
        }
        DP_TRY(dp_records_read(u->records, block, &u->stored, &u->memory, &view));
        for (uint32_t k = 0; k < view.samples; k++) {
            struct dp_raw raw;
            DP_TRY(dp_records_sample(u->records, block, &view, block->first + k, &raw));
            DP_TRY(unpack_sample(u, block->first + k, &raw));
        }
    }
    return DP_OK;
}

static dp_status unpack_sets(struct unpacker *u)
{
    char paths[2][DP_PATH_BYTES];

    for (int set = 0; set < DP_SETS; set++) {
        dp_status status = DP_OK;
        u->set = (enum dp_set)set;
        if (u->index->count[set] == 0) {
            continue;
        }
        if (u->index->kind == DP_RECORDS_ARRAYS) {
            status = begin_arrays(u, paths);
        }
        status = status == DP_OK ? unpack_set(u) : status;
        if (u->open && status == DP_OK) {
            status = end_arrays(u);
        } else if (u->open) {
            dp_file_discard(&u->images);
            dp_file_discard(&u->labels);
            u->open = false;
        }
        DP_TRY(status);
    }
    return DP_OK;
}

dp_status dp_records_unpack(const struct dp_records *records, const char *to, bool (*stopped)(void))
{
    struct unpacker u = {
        .records = records, .index = dp_records_index(records), .stopped = stopped};
    const int length = snprintf(u.dir, sizeof(u.dir), "%s.part", to);
    dp_status status;

    if (length < 0 || (size_t)length >= sizeof(u.dir)) {
        return DP_FAIL(DP_ERR_USAGE, "%s: too long a name", to);
    }
    if (access(to, F_OK) == 0 || access(u.dir, F_OK) == 0) {
        return DP_FAIL(DP_ERR_USAGE, "%s: is there already: delete it, or name another folder",
                       access(to, F_OK) == 0 ? to : u.dir);
    }
    DP_TRY(make_folder(u.dir));
    status = unpack_sets(&u);
    if (status == DP_OK && dp_disk_rename(u.dir, to) != 0) {
        status = dp_file_fail(to, errno);
    }
    dp_buffer_release(&u.stored);
    dp_buffer_release(&u.memory);
    dp_buffer_release(&u.png);
    return status;
}
