/*
 * bench_input.c - how fast the input is, and what it is made of; one line of JSON.
 *
 *   bench_input batches DIR SIDE THREADS SECONDS   pictures of DIR become normalised batches:
 *                                                  random resized crop, flip, float32
 *   bench_input decode DIR THREADS SECONDS         the same files by libjpeg-turbo alone, whole
 *   bench_input records DIR SECONDS                blocks of records, in order, each hash compared,
 *                                                  and in turns the same files by pread alone
 *   bench_input csv MB SECONDS                     lines of so many MB in memory become numbers: a
 *                                                  label and 784 bytes, bytes / 255 to four digits,
 *                                                  or doubles
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <turbojpeg.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/statistics.h"
#include "base/trace.h"
#include "kernels/device.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/formats/csv.h"
#include "runtime/data/loader.h"
#include "runtime/data/records/records.h"
#include "runtime/data/sample_reader.h"

enum {
    BATCH = 32,
    WARM = 16,
    PIECE = 1 << 16,
    THREADS_MOST = 64,
    TURNS_LEAST = 5,
    TURNS_MOST = 1000
};

static uint64_t after(double seconds)
{
    return dp_now_ns() + (uint64_t)(seconds * 1e9);
}

static void check(dp_status status)
{
    if (status != DP_OK) {
        exit(1); /* it has been reported */
    }
}

static struct dp_samples *opened(const char *dir, int side)
{
    const struct dp_source_config config = {
        .dir = dir,
        .input = {.height = side, .width = side, .channels = 3, .count = (size_t)(3 * side * side)},
        .only_train = true};
    struct dp_samples *samples = NULL;

    check(dp_samples_open("folder", &config, &samples));
    return samples;
}

/* ---- batches ---- */

static void batches(const char *dir, int side, int threads, double seconds)
{
    static const float scale[3] = {0.017f, 0.0175f, 0.0174f}, shift[3] = {-2.1f, -2.0f, -1.8f};
    struct dp_samples *samples = opened(dir, side);
    const struct dp_samples_info *info = dp_samples_info(samples);
    const size_t bytes = dp_shape_bytes(&info->shape);
    struct dp_augment *augment = NULL;
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;
    struct dp_loader *loader = NULL;
    struct dp_batch batch;
    char problem[256];
    uint64_t rows = 0, begin_ns = 0, end_ns = 0;
    float *numbers = dp_mem_arena(DP_MEM_DATA, BATCH * bytes * sizeof(*numbers));

    check(dp_augment_create("random_resized_crop;flip", &info->shape, 1, &augment, problem,
                            sizeof(problem)));
    const struct dp_loader_config config = {.samples = samples,
                                            .count = info->count[DP_SET_TRAIN],
                                            .sample_bytes = bytes,
                                            .global_batch = BATCH,
                                            .ranks = 1,
                                            .shuffle = true,
                                            .drop_last = true,
                                            .total_steps = UINT64_MAX,
                                            .augment = augment,
                                            .workers = threads};
    check(dp_device_find("cpu", &device));
    check(device->stream_create(device, 1, &stream));
    check(dp_loader_create(&config, &loader));
    for (int i = 0; numbers != NULL && (i < WARM || dp_now_ns() < end_ns); i++) {
        check(dp_loader_next(loader, &batch));
        check(stream->ops->bytes_load(stream, numbers, batch.images, scale, shift, 3,
                                      batch.rows * bytes));
        if (i + 1 == WARM) {
            begin_ns = dp_now_ns();
            end_ns = after(seconds);
        } else if (i >= WARM) {
            rows += batch.rows;
        }
    }
    (void)printf("{\"samples_per_second\": %.1f}\n",
                 (double)rows * 1e9 / (double)(dp_now_ns() - begin_ns));
    dp_loader_destroy(loader);
    device->stream_destroy(stream);
    dp_augment_destroy(augment);
    dp_samples_close(samples);
    dp_free(numbers);
}

/* ---- decoding alone ---- */

struct files {
    uint8_t **bytes;
    size_t *length, count;
    uint64_t end_ns;
};

struct part {
    const struct files *files;
    uint64_t pictures;
    pthread_t thread;
};

static void *decode_along(void *arg)
{
    struct part *part = arg;
    tjhandle decoder = tjInitDecompress();
    int width, height, subsampling, space;
    uint8_t *pixels = malloc((size_t)3 * 4096 * 4096);

    for (size_t i = 0; dp_now_ns() < part->files->end_ns; i = (i + 1) % part->files->count) {
        const uint8_t *bytes = part->files->bytes[i];
        const size_t length = part->files->length[i];
        if (tjDecompressHeader3(decoder, bytes, length, &width, &height, &subsampling, &space) ||
            width > 4096 || height > 4096 ||
            tjDecompress2(decoder, bytes, length, pixels, width, 0, height, TJPF_RGB, 0)) {
            exit(1);
        }
        part->pictures++;
    }
    free(pixels);
    (void)tjDestroy(decoder);
    return NULL;
}

static void decode(const char *dir, int threads, double seconds)
{
    struct dp_samples *samples = opened(dir, 224);
    struct dp_sample_reader *reader = NULL;
    struct part parts[THREADS_MOST];
    struct files files = {.count = dp_samples_info(samples)->count[DP_SET_TRAIN]};
    uint64_t pictures = 0;
    struct dp_raw raw;

    files.bytes = dp_zalloc(files.count, sizeof(*files.bytes));
    files.length = dp_zalloc(files.count, sizeof(*files.length));
    check(dp_sample_reader_create(samples, &reader));
    for (size_t i = 0; i < files.count; i++) {
        check(dp_sample_reader_raw(reader, DP_SET_TRAIN, i, &raw));
        files.bytes[i] = dp_zalloc(1, raw.bytes);
        memcpy(files.bytes[i], raw.data, raw.bytes);
        files.length[i] = raw.bytes;
    }
    files.end_ns = after(seconds);
    for (int i = 0; i < threads; i++) {
        parts[i] = (struct part){.files = &files};
        (void)pthread_create(&parts[i].thread, NULL, decode_along, &parts[i]);
    }
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(parts[i].thread, NULL);
        pictures += parts[i].pictures;
    }
    (void)printf("{\"samples_per_second\": %.1f}\n", (double)pictures / seconds);
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
}

/* ---- records ---- */

/* GB/s of all blocks to train on, read and checked. */
static double read_blocks(const struct dp_records *records)
{
    const size_t count = dp_records_blocks(records, DP_SET_TRAIN);
    const uint64_t begin_ns = dp_now_ns();
    struct dp_buffer stored = {NULL, 0}, memory = {NULL, 0};
    struct dp_block_view view;
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        const struct dp_records_block *block = dp_records_block(records, DP_SET_TRAIN, i);
        check(dp_records_read(records, block, &stored, &memory, &view));
        bytes += block->block.stored;
    }
    dp_buffer_release(&stored);
    dp_buffer_release(&memory);
    return (double)bytes / (double)(dp_now_ns() - begin_ns);
}

/* GB/s of the files of these blocks, copied out of the page cache in pieces of a block's size. */
static double read_bytes(const struct dp_records *records)
{
    const size_t last =
        dp_records_block(records, DP_SET_TRAIN, dp_records_blocks(records, DP_SET_TRAIN) - 1)
            ->shard;
    const uint64_t begin_ns = dp_now_ns();
    char *piece = malloc(PIECE);
    uint64_t bytes = 0;

    for (size_t shard = 0; shard <= last; shard++) {
        const int fd = open(dp_records_path(records, shard), O_RDONLY | O_CLOEXEC);
        ssize_t got = PIECE;
        for (off_t at = 0; got == PIECE; at += got) {
            got = pread(fd, piece, PIECE, at);
            bytes += got > 0 ? (uint64_t)got : 0;
        }
        (void)close(fd);
    }
    free(piece);
    return (double)bytes / (double)(dp_now_ns() - begin_ns);
}

static void records(const char *dir, double seconds)
{
    struct dp_records *r = NULL;
    const struct dp_shard_store_config config = {.dir = dir};
    double plain[TURNS_MOST], checked[TURNS_MOST], ratio[TURNS_MOST];
    const uint64_t end_ns = after(seconds);
    int turns = 0;

    check(dp_records_open(&config, &r));
    (void)read_bytes(r); /* into the page cache */
    while (turns < TURNS_MOST && (turns < TURNS_LEAST || dp_now_ns() < end_ns)) {
        plain[turns] = read_bytes(r);
        checked[turns] = read_blocks(r);
        ratio[turns] = checked[turns] / plain[turns];
        turns++;
    }
    dp_sort(plain, (size_t)turns);
    dp_sort(checked, (size_t)turns);
    dp_sort(ratio, (size_t)turns);
    (void)printf("{\"records_gbs\": %.3f, \"pread_gbs\": %.3f, \"ratio\": %.3f, \"turns\": %d}\n",
                 dp_median(checked, (size_t)turns), dp_median(plain, (size_t)turns),
                 dp_median(ratio, (size_t)turns), turns);
    dp_records_close(r);
}

/* ---- lines of numbers ---- */

enum { FIELDS = 785, FIELD_MOST = 32 };

/* One more field, with what separates it from the next one. */
static size_t write_field(char *text, int kind, uint32_t chance, char after)
{
    static const int digits[] = {3, 4, 17};
    const double number = kind == 0   ? (double)(chance % 256)
                          : kind == 1 ? (double)(chance % 256) / 255.0
                                      : (double)chance / UINT32_MAX;

    return (size_t)snprintf(text, FIELD_MOST, "%.*g%c", digits[kind], number, after);
}

static size_t write_lines(char *text, size_t bytes, int kind)
{
    size_t used = 0;

    for (uint32_t line = 0; used + (size_t)FIELDS * FIELD_MOST < bytes; line++) {
        used += write_field(text + used, 0, line % 10, ',');
        for (uint32_t i = 1; i < FIELDS; i++) {
            used += write_field(text + used, kind, dp_random_u32(1, DP_RANDOM_SYNTHETIC, line, i),
                                i + 1 < FIELDS ? ',' : '\n');
        }
    }
    return used;
}

/* MB/s of all lines. */
static double read_lines(const char *text, size_t bytes, float *numbers)
{
    const char *at = text, *end;
    const struct dp_csv_form form =
        dp_csv_form_of(text, (size_t)((const char *)memchr(text, '\n', bytes) - text), false);
    const uint64_t begin_ns = dp_now_ns();
    struct dp_problem problem;
    double label;

    for (; at < text + bytes; at = end + 1) {
        end = memchr(at, '\n', bytes - (size_t)(at - text));
        check(dp_csv_read(&form, at, (size_t)(end - at), numbers, &label, &problem));
    }
    return (double)bytes * 1e3 / (double)(dp_now_ns() - begin_ns);
}

static void csv(size_t bytes, double seconds)
{
    static const char *const kinds[] = {"bytes", "four_digits", "doubles"};
    char *text = malloc(bytes);
    float *numbers = malloc(FIELDS * sizeof(*numbers));

    for (int kind = 0; text != NULL && numbers != NULL && kind < 3; kind++) {
        const size_t used = write_lines(text, bytes, kind);
        const uint64_t end_ns = after(seconds / 3);
        double rates[TURNS_MOST];
        int turns = 0;
        while (turns < TURNS_MOST && (turns < TURNS_LEAST || dp_now_ns() < end_ns)) {
            rates[turns++] = read_lines(text, used, numbers);
        }
        dp_sort(rates, (size_t)turns);
        (void)printf("%s\"%s_mbs\": %.1f", kind == 0 ? "{" : ", ", kinds[kind],
                     dp_median(rates, (size_t)turns));
    }
    (void)printf("}\n");
    free(numbers);
    free(text);
}

int main(int count, char **words)
{
    if (count == 6 && strcmp(words[1], "batches") == 0) {
        batches(words[2], (int)strtol(words[3], NULL, 10), (int)strtol(words[4], NULL, 10),
                strtod(words[5], NULL));
    } else if (count == 5 && strcmp(words[1], "decode") == 0) {
        decode(words[2], (int)strtol(words[3], NULL, 10), strtod(words[4], NULL));
    } else if (count == 4 && strcmp(words[1], "records") == 0) {
        records(words[2], strtod(words[3], NULL));
    } else if (count == 4 && strcmp(words[1], "csv") == 0) {
        csv((size_t)(strtod(words[2], NULL) * 1e6), strtod(words[3], NULL));
    } else {
        (void)fprintf(stderr, "usage: see benchmarks/bench_input.c\n");
        return 64;
    }
    return 0;
}
