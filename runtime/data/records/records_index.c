#include "runtime/data/records/records_index.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/records/shard_format.h"

#define FORMAT "lockstep.records"

enum { VERSION = 1, HEX64 = 17 };

static const char *const kinds[DP_RECORDS_KINDS] = {"array", "picture", "pixels"};
static const char *const sets[DP_SETS] = {"train", "test"};
static const char *const elements[] = {[DP_ELEMENT_BYTE] = "uint8", [DP_ELEMENT_FLOAT] = "float32"};

void dp_records_shard_name(char name[DP_RECORDS_NAME], size_t number)
{
    (void)snprintf(name, DP_RECORDS_NAME, "shard-%05u.rec", (unsigned)(number % 100000));
}

const char *dp_records_kind_text(enum dp_records_kind kind)
{
    return kinds[kind];
}

struct dp_block_form dp_records_form(const struct dp_records_index *index)
{
    return (struct dp_block_form){
        .sample_bytes = index->kind == DP_RECORDS_ARRAYS ? dp_shape_bytes(&index->shape) : 0,
        .label_numbers = index->label_numbers > 0 ? index->label_numbers : 1};
}

/* The hash of all members but its own. */
static dp_status hash_of(const struct dp_json *json, char hex[HEX64])
{
    struct dp_json *copy = dp_json_create();
    struct dp_json_member member = {0};
    dp_status status = copy != NULL ? DP_OK : DP_ERR_NOMEM;
    char *text = NULL;

    while (status == DP_OK && dp_json_next(json, &member)) {
        if (strcmp(member.key, "xxh3") != 0) {
            status = dp_json_set_copy(copy, member.key, member.value);
        }
    }
    status = status == DP_OK ? dp_json_dump(copy, 0, DP_JSON_EXACT, &text) : status;
    if (status == DP_OK) {
        (void)snprintf(hex, HEX64, "%016" PRIx64, XXH3_64bits(text, strlen(text)));
    }
    dp_free(text);
    dp_json_destroy(copy);
    return status;
}

/* ---- writing ---- */

static dp_status put_sample(const struct dp_records_index *index, struct dp_json *object)
{
    const struct dp_sample_shape *s = &index->shape;

    DP_TRY(dp_json_set_text(object, "kind", kinds[index->kind]));
    if (index->kind == DP_RECORDS_ARRAYS) {
        struct dp_json *shape = dp_json_set_array(object, "shape");
        if (s->height > 0) {
            DP_TRY(dp_json_push_int(shape, s->height));
            DP_TRY(dp_json_push_int(shape, s->width));
            DP_TRY(dp_json_push_int(shape, s->channels));
        } else {
            DP_TRY(dp_json_push_int(shape, (int64_t)s->count));
        }
    }
    return dp_json_set_text(object, "type", elements[s->element]);
}

static dp_status put_statistics(const struct dp_records_index *index, struct dp_json *object)
{
    struct dp_json *mean = dp_json_set_array(object, "mean"),
                   *std = dp_json_set_array(object, "std");

    for (int i = 0; i < index->channels; i++) {
        DP_TRY(dp_json_push_real(mean, index->mean[i]));
        DP_TRY(dp_json_push_real(std, index->std[i]));
    }
    return object != NULL ? DP_OK : DP_ERR_NOMEM;
}

static dp_status put_shard(const struct dp_records_shard *shard, size_t number,
                           struct dp_json *object)
{
    char name[DP_RECORDS_NAME], hex[HEX64];

    dp_records_shard_name(name, number);
    (void)snprintf(hex, sizeof(hex), "%016" PRIx64, shard->table_hash);
    DP_TRY(dp_json_set_text(object, "file", name));
    DP_TRY(dp_json_set_text(object, "set", sets[shard->set]));
    DP_TRY(dp_json_set_int(object, "bytes", (int64_t)shard->bytes));
    DP_TRY(dp_json_set_int(object, "samples", (int64_t)shard->samples));
    DP_TRY(dp_json_set_int(object, "blocks", (int64_t)shard->blocks));
    DP_TRY(dp_json_set_text(object, "table_xxh3", hex));
    return dp_json_set_text(object, "xxh3", shard->hash);
}

static dp_status put_index(const struct dp_records_index *index, struct dp_json *json)
{
    struct dp_json *object, *array;

    DP_TRY(dp_json_set_text(json, "format", FORMAT));
    DP_TRY(dp_json_set_int(json, "version", VERSION));
    DP_TRY(put_sample(index, dp_json_set_object(json, "sample")));
    DP_TRY(dp_json_set_int(json, "classes", index->classes));
    if (index->label_numbers > 0) { /* not otherwise: most folders are as they always were */
        DP_TRY(dp_json_set_int(json, "label_numbers", (int64_t)index->label_numbers));
    }
    if (index->class_names != NULL) {
        array = dp_json_set_array(json, "class_names");
        for (int i = 0; i < index->classes; i++) {
            DP_TRY(dp_json_push_text(array, index->class_names[i]));
        }
    }
    object = dp_json_set_object(json, "samples");
    for (int set = 0; set < DP_SETS; set++) {
        DP_TRY(dp_json_set_int(object, sets[set], (int64_t)index->count[set]));
    }
    DP_TRY(put_statistics(index, dp_json_set_object(json, "normalize")));
    DP_TRY(dp_json_set_int(json, "block_bytes", (int64_t)index->block_bytes));
    object = dp_json_set_object(json, "compression");
    DP_TRY(dp_json_set_text(object, "name", index->zstd != 0 ? "zstd" : "none"));
    DP_TRY(dp_json_set_int(object, "level", index->zstd));
    array = dp_json_set_array(json, "shards");
    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(put_shard(&index->shards[i], i, dp_json_push_object(array)));
    }
    return DP_OK;
}

dp_status dp_records_index_save(const struct dp_records_index *index, const char *dir)
{
    struct dp_json *json = dp_json_create();
    char path[DP_PATH_BYTES], hex[HEX64];
    dp_status status = dp_file_join(path, dir, DP_RECORDS_INDEX);

    status = status == DP_OK ? put_index(index, json) : status;
    status = status == DP_OK ? hash_of(json, hex) : status;
    status = status == DP_OK ? dp_json_set_text(json, "xxh3", hex) : status;
    if (status == DP_ERR_NOMEM) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s", path);
    }
    status = status == DP_OK ? dp_json_save(json, DP_JSON_EXACT, path) : status;
    dp_json_destroy(json);
    return status;
}

/* ---- reading ---- */

/* What is being read, and whether all members so far were as they must be. */
struct reading {
    const char *source;
    const char *wrong; /* the first member that is not; NULL: none */
};

static int64_t take_int(struct reading *r, const struct dp_json *object, const char *key,
                        int64_t least, int64_t most)
{
    int64_t value = 0;

    if ((!dp_json_int(dp_json_get(object, key), &value) || value < least || value > most) &&
        r->wrong == NULL) {
        r->wrong = key;
    }
    return r->wrong == NULL ? value : least;
}

/* Which of `words` a member is. */
static int take_word(struct reading *r, const struct dp_json *object, const char *key,
                     const char *const *words, int count)
{
    const char *text = dp_json_text(dp_json_get(object, key));

    for (int i = 0; text != NULL && i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    r->wrong = r->wrong == NULL ? key : r->wrong;
    return 0;
}

/* A text of so many hexadecimal digits. */
static const char *take_hex(struct reading *r, const struct dp_json *object, const char *key,
                            size_t digits)
{
    const char *text = dp_json_text(dp_json_get(object, key));

    if (text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits) {
        return text;
    }
    r->wrong = r->wrong == NULL ? key : r->wrong;
    return "";
}

static uint64_t hex_value(const char *text)
{
    uint64_t value = 0;

    for (; *text != '\0'; text++) {
        value = value << 4 | (uint64_t)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
    }
    return value;
}

static void take_shape(struct reading *r, const struct dp_json *sample, struct dp_sample_shape *s)
{
    const struct dp_json *shape = dp_json_get(sample, "shape");
    const size_t dims = dp_json_length(shape);
    int64_t dim[3] = {0, 0, 0}, count = 1;
    bool good = dp_json_is_array(shape) && (dims == 1 || dims == 3);

    for (size_t i = 0; good && i < dims; i++) {
        good = dp_json_int(dp_json_at(shape, i), &dim[i]) && dim[i] > 0 && dim[i] <= INT_MAX &&
               dim[i] <= DP_SHARD_SAMPLE_BYTES / count;
        count *= good ? dim[i] : 1;
    }
    if (!good || (size_t)count * dp_element_bytes(s->element) > DP_SHARD_SAMPLE_BYTES) {
        r->wrong = r->wrong == NULL ? "shape" : r->wrong;
        return;
    }
    s->count = (size_t)count;
    if (dims == 3) {
        s->height = (int)dim[0];
        s->width = (int)dim[1];
        s->channels = (int)dim[2];
    }
}

static void take_sample(struct reading *r, const struct dp_json *json, struct dp_records_index *i)
{
    const struct dp_json *sample = dp_json_get(json, "sample");

    i->kind = (enum dp_records_kind)take_word(r, sample, "kind", kinds, DP_RECORDS_KINDS);
    i->shape.element = (enum dp_element)take_word(r, sample, "type", elements, 2);
    if (i->kind == DP_RECORDS_ARRAYS) {
        take_shape(r, sample, &i->shape);
    } else if (i->shape.element != DP_ELEMENT_BYTE && r->wrong == NULL) {
        r->wrong = "type";
    }
}

/* A terminal, a log or a report would obey control characters. */
static bool is_clean(const char *name)
{
    char clean[1024];

    (void)dp_text_clean(name, clean, sizeof(clean));
    return name[0] != '\0' && strcmp(name, clean) == 0;
}

static dp_status take_names(struct reading *r, const struct dp_json *json,
                            struct dp_records_index_file *file)
{
    const struct dp_json *names = dp_json_get(json, "class_names");
    const size_t count = dp_json_length(names);

    if (names == NULL) {
        return DP_OK;
    }
    if (!dp_json_is_array(names) || count == 0 || count != (size_t)file->index.classes) {
        r->wrong = r->wrong == NULL ? "class_names" : r->wrong;
        return DP_OK;
    }
    file->class_names = dp_zalloc(count, sizeof(*file->class_names));
    if (file->class_names == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: names of classes", r->source);
    }
    for (size_t i = 0; i < count; i++) {
        file->class_names[i] = dp_json_text(dp_json_at(names, i));
        if (file->class_names[i] == NULL || !is_clean(file->class_names[i])) {
            return DP_FAIL(DP_ERR_DATA,
                           "%s: the name of class %zu is empty, no text, or has control "
                           "characters: pack again",
                           r->source, i);
        }
    }
    file->index.class_names = file->class_names;
    return DP_OK;
}

static void take_statistics(struct reading *r, const struct dp_json *json,
                            struct dp_records_index *index)
{
    const struct dp_json *object = dp_json_get(json, "normalize");
    const struct dp_json *mean = dp_json_get(object, "mean"), *std = dp_json_get(object, "std");
    const size_t count = dp_json_length(mean);
    bool good = dp_json_is_array(mean) && dp_json_is_array(std) && count == dp_json_length(std) &&
                count <= DP_RECORDS_CHANNELS;

    for (size_t i = 0; good && i < count; i++) {
        good = dp_json_real(dp_json_at(mean, i), &index->mean[i]) &&
               dp_json_real(dp_json_at(std, i), &index->std[i]) && index->std[i] >= 0.0;
    }
    index->channels = good ? (int)count : 0;
    if (!good && r->wrong == NULL) {
        r->wrong = "normalize";
    }
}

static void take_shard(struct reading *r, const struct dp_json *object, size_t number,
                       struct dp_records_shard *shard)
{
    char name[DP_RECORDS_NAME];
    const char *const names[] = {name};

    dp_records_shard_name(name, number);
    (void)take_word(r, object, "file", names, 1);
    shard->set = (enum dp_set)take_word(r, object, "set", sets, DP_SETS);
    shard->bytes = (uint64_t)take_int(r, object, "bytes", DP_SHARD_HEAD + DP_SHARD_FOOT, INT64_MAX);
    shard->samples = (uint64_t)take_int(r, object, "samples", 1, INT64_MAX / DP_RECORDS_SHARDS);
    shard->blocks = (uint64_t)take_int(r, object, "blocks", 1, INT64_MAX / DP_RECORDS_SHARDS);
    shard->table_hash = hex_value(take_hex(r, object, "table_xxh3", HEX64 - 1));
    (void)snprintf(shard->hash, sizeof(shard->hash), "%s",
                   take_hex(r, object, "xxh3", DP_HASH_TEXT - 1));
}

static dp_status take_shards(struct reading *r, const struct dp_json *json,
                             struct dp_records_index *index)
{
    const struct dp_json *shards = dp_json_get(json, "shards");
    uint64_t count[DP_SETS] = {0, 0};

    index->shard_count = dp_json_length(shards);
    if (!dp_json_is_array(shards) || index->shard_count == 0 ||
        index->shard_count > DP_RECORDS_SHARDS) {
        index->shard_count = 0;
        r->wrong = r->wrong == NULL ? "shards" : r->wrong;
        return DP_OK;
    }
    index->shards = dp_zalloc(index->shard_count, sizeof(*index->shards));
    if (index->shards == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: %zu shards", r->source, index->shard_count);
    }
    for (size_t i = 0; i < index->shard_count && r->wrong == NULL; i++) {
        take_shard(r, dp_json_at(shards, i), i, &index->shards[i]);
        count[index->shards[i].set] += index->shards[i].samples;
        if (r->wrong == NULL && i > 0 && index->shards[i].set < index->shards[i - 1].set) {
            r->wrong = "set";
        }
    }
    for (int set = 0; set < DP_SETS && r->wrong == NULL; set++) {
        if (count[set] != index->count[set]) {
            return DP_FAIL(DP_ERR_DATA,
                           "%s: says %llu samples of the %s set, its shards have %llu: pack again",
                           r->source, (unsigned long long)index->count[set],
                           set == DP_SET_TRAIN ? "training" : "test",
                           (unsigned long long)count[set]);
        }
    }
    return DP_OK;
}

static dp_status take_version(struct reading *r, const struct dp_json *json)
{
    const char *format = dp_json_text(dp_json_get(json, "format"));
    int64_t version = 0;

    if (format == NULL || strcmp(format, FORMAT) != 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: is no index of records: ddp_data pack makes one",
                       r->source);
    }
    if (!dp_json_int(dp_json_get(json, "version"), &version) || version != VERSION) {
        return DP_FAIL(DP_ERR_DATA, "%s: has version %lld, this program reads %d: pack again",
                       r->source, (long long)version, VERSION);
    }
    return DP_OK;
}

/* Nothing but what was written. */
static dp_status check_hash(const struct reading *r, const struct dp_json *json)
{
    const char *said = dp_json_text(dp_json_get(json, "xxh3"));
    char hex[HEX64];
    const dp_status status = hash_of(json, hex);

    if (status != DP_OK) {
        return DP_FAIL(status, "%s: hash", r->source);
    }
    return said != NULL && strcmp(said, hex) == 0
               ? DP_OK
               : DP_FAIL(DP_ERR_DATA,
                         "%s: was altered, its hash is another: pack again, or copy "
                         "it again",
                         r->source);
}

static dp_status take_index(struct reading *r, const struct dp_json *json,
                            struct dp_records_index_file *file)
{
    struct dp_records_index *index = &file->index;
    const struct dp_json *samples = dp_json_get(json, "samples");
    static const char *const names[] = {"none", "zstd"};

    DP_TRY(take_version(r, json));
    take_sample(r, json, index);
    index->classes = (int)take_int(r, json, "classes", 0, DP_RECORDS_CLASSES);
    if (dp_json_get(json, "label_numbers") != NULL) {
        const int64_t most =
            index->classes == 0 ? DP_RECORDS_LABEL : 0; /* classes are no numbers */
        index->label_numbers = (size_t)take_int(r, json, "label_numbers", 1, most);
    }
    for (int set = 0; set < DP_SETS; set++) {
        index->count[set] =
            (uint64_t)take_int(r, samples, sets[set], set == DP_SET_TRAIN ? 1 : 0, INT64_MAX);
    }
    DP_TRY(take_names(r, json, file));
    take_statistics(r, json, index);
    index->block_bytes = (uint64_t)take_int(r, json, "block_bytes", 1, DP_SHARD_SAMPLE_BYTES);
    (void)take_word(r, dp_json_get(json, "compression"), "name", names, 2);
    index->zstd = (int)take_int(r, dp_json_get(json, "compression"), "level", 0, 100);
    DP_TRY(take_shards(r, json, index));
    if (r->wrong != NULL) {
        return DP_FAIL(DP_ERR_DATA, "%s: '%s' is missing, or cannot be what it says: pack again",
                       r->source, r->wrong);
    }
    return check_hash(r, json);
}

dp_status dp_records_index_parse(const char *text, size_t bytes, const char *source,
                                 struct dp_records_index_file *out)
{
    struct reading reading = {.source = source};
    struct dp_records_index_file file = {.json = NULL};
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_json_parse(text, bytes, source, &file.json);
    dp_log_capture_end(&capture, status == DP_ERR_DATA ? DP_LOG_DROP : DP_LOG_PRINT);
    if (status == DP_ERR_DATA) {
        return DP_FAIL(status, "%s: copy it again, or pack again", dp_log_captured(&capture));
    }
    status = status == DP_OK ? take_index(&reading, file.json, &file) : status;
    if (status != DP_OK) {
        dp_records_index_release(&file);
        return status;
    }
    *out = file;
    return DP_OK;
}

dp_status dp_records_index_text(const char *dir, char **text, size_t *bytes)
{
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, dir, DP_RECORDS_INDEX));
    if (access(path, F_OK) != 0) {
        return dp_data_file_missing(dir, DP_RECORDS_INDEX,
                                    "make it with ddp_data pack, which writes that last");
    }
    return dp_file_read(path, DP_RECORDS_INDEX_BYTES, text, bytes);
}

dp_status dp_records_index_read(const char *dir, struct dp_records_index_file *out)
{
    char path[DP_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    dp_status status;

    DP_TRY(dp_file_join(path, dir, DP_RECORDS_INDEX));
    DP_TRY(dp_records_index_text(dir, &text, &bytes));
    status = dp_records_index_parse(text, bytes, path, out);
    dp_free(text);
    return status;
}

void dp_records_index_release(struct dp_records_index_file *file)
{
    dp_free(file->index.shards);
    dp_free(file->class_names);
    dp_json_destroy(file->json);
    *file = (struct dp_records_index_file){.json = NULL};
}
