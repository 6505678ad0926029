#include "runtime/run/dataset/data_prints.h"

#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/consistency.h"
#include "runtime/data/sample_reader.h"

enum {
    /* So many bytes of each set of images are compared: all of a small set, and of a large one
     * rows that are spread evenly over it, which takes next to no time. */
    SAMPLE_BYTES = 512 * 1024,
    SPREAD = 256,   /* rows whose labels are hashed, */
    EVERY_IMAGE = 4 /* and of so many of them the image of one, where images are read */
};

/* ---- in memory ---- */

static uint64_t hash_images(const uint8_t *images, size_t count, size_t sample_bytes)
{
    const size_t every = count * sample_bytes / SAMPLE_BYTES + 1;
    uint64_t hash = 0;

    for (size_t row = 0; row < count; row += every) {
        hash = XXH3_64bits_withSeed(images + row * sample_bytes, sample_bytes, hash);
    }
    return hash;
}

/* Row `i` of those that are spread over `count` rows; false: there are no more. */
static bool spread_row(size_t count, size_t i, size_t *row)
{
    const size_t rows = count < SPREAD ? count : SPREAD;

    *row = rows > 0 ? i * count / rows : 0;
    return i < rows;
}

static uint64_t hash_spread(const int32_t *labels, size_t count, size_t words)
{
    uint64_t hash = 0;
    size_t row;

    for (size_t i = 0; spread_row(count, i, &row); i++) {
        hash = XXH3_64bits_withSeed(labels + row * words, words * sizeof(*labels), hash);
    }
    return hash;
}

struct dp_data_prints dp_data_prints_of_memory(const struct dp_dataset *d, size_t label_words)
{
    const size_t label = label_words * sizeof(int32_t);

    return (struct dp_data_prints){
        .labels = {XXH3_64bits(d->train_labels, d->train_count * label),
                   XXH3_64bits(d->test_labels, d->test_count * label)},
        .images = {hash_images(d->train_images, d->train_count, d->sample_bytes),
                   hash_images(d->test_images, d->test_count, d->sample_bytes)},
        .spread_labels = hash_spread(d->train_labels, d->train_count, label_words),
    };
}

/* ---- in files ---- */

static void hash_row(struct dp_sample_reader *reader, enum dp_set set, size_t row, int32_t *label,
                     size_t label_bytes, uint64_t *labels, uint64_t *images)
{
    struct dp_log_capture capture;
    struct dp_raw raw;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (dp_sample_reader_label(reader, set, row, &raw, label) == DP_OK) {
        *labels = XXH3_64bits_withSeed(label, label_bytes, *labels);
        *images = XXH3_64bits_withSeed(raw.data, raw.bytes, *images);
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
}

dp_status dp_data_prints_of_files(struct dp_samples *samples, struct dp_data_prints *out)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    const size_t words = dp_label_words(info);
    struct dp_sample_reader *reader = NULL;
    int32_t *label = dp_zalloc(words, sizeof(*label));
    dp_status status = label != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "a label");
    uint64_t ignored = 0;
    size_t row;

    memset(out, 0, sizeof(*out));
    status = status == DP_OK ? dp_sample_reader_create(samples, &reader) : status;
    for (int set = 0; status == DP_OK && set < DP_SETS; set++) {
        for (size_t i = 0; spread_row(info->count[set], i, &row); i++) {
            hash_row(reader, (enum dp_set)set, row, label, words * sizeof(*label),
                     &out->labels[set], i % EVERY_IMAGE == 0 ? &out->images[set] : &ignored);
        }
    }
    out->spread_labels = out->labels[DP_SET_TRAIN];
    dp_sample_reader_destroy(reader);
    dp_free(label);
    return status;
}

/* ---- comparing ---- */

struct dp_consistency_item dp_data_claim(const char *field, uint64_t hash)
{
    return (struct dp_consistency_item){
        .field = field, .hash = hash, .remedy = "give all hosts the same data set"};
}

dp_status dp_data_prints_compare(struct dp_group *group, const struct dp_data_prints *prints)
{
    const struct dp_consistency_item items[] = {
        dp_data_claim("list of training labels", prints->labels[DP_SET_TRAIN]),
        dp_data_claim("list of test labels", prints->labels[DP_SET_TEST]),
        dp_data_claim("set of training images", prints->images[DP_SET_TRAIN]),
        dp_data_claim("set of test images", prints->images[DP_SET_TEST]),
    };

    return dp_consistency_check(group, items, sizeof(items) / sizeof(items[0]));
}
