#include "runtime/data/records/pack.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/files/lock.h"
#include "base/log.h"
#include "base/system/worker.h"
#include "base/trace.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/records/pack_sample.h"
#include "runtime/data/records/shard_writer.h"

#define MARK ".lockstep-records"

enum {
    BLOCK_BYTES = 64 * 1024,
    WAVE = 256, /* samples that threads read before one of them writes them */
    ERROR_BYTES = 1024
};

struct packer;

/* A thread that reads samples. */
struct hand {
    struct packer *packer;
    struct dp_pack_maker *maker; /* owned */
    struct dp_worker *worker;    /* owned; NULL: the main thread */
    size_t bad;                  /* 1 + the slot that it failed at; 0: none */
    char error[ERROR_BYTES];
};

struct packer {
    const struct dp_pack_options *options;
    struct dp_samples *samples; /* owned */
    struct dp_records_index index;
    struct dp_pack_form form;
    struct dp_shard_writer *writer; /* owned */
    struct hand *hands;             /* owned; [threads] */
    struct dp_packed *slots;        /* owned; [WAVE] */
    struct dp_statistics statistics;
    struct dp_pack_effect effect;
    enum dp_set set; /* of the wave: its set, first sample, and number */
    size_t first, count;
    atomic_size_t next; /* slot that nobody has taken yet */
    uint64_t read_bytes, begin_ns;
    double largest_label;
    bool whole_labels;
};

const char *dp_pack_source_of(const char *dir)
{
    static const char *const found[][2] = {
        {"index.json", "records"},
        {"train-images-idx3-ubyte", "idx"},
        {"train-images-idx3-ubyte.gz", "idx"},
        {"train_images.npy", "npy"},
        {"data_batch_1.bin", "cifar10"},
        {"train.csv", "csv"},
    };

    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        if (dp_data_file_exists(dir, found[i][0])) {
            return found[i][1];
        }
    }
    return "folder";
}

/* ---- samples, on any thread ---- */

/* Takes samples of the wave until none is left. What is wrong is kept, to be said for the first. */
static dp_status work(void *context)
{
    struct hand *hand = context;
    struct packer *p = hand->packer;
    struct dp_log_capture capture;
    dp_status status = DP_OK;
    size_t i;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    while (status == DP_OK && (i = atomic_fetch_add(&p->next, 1)) < p->count) {
        status = dp_pack_maker_make(hand->maker, p->set, p->first + i, &p->slots[i]);
        if (status != DP_OK) {
            hand->bad = i + 1;
        }
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (status != DP_OK) {
        (void)snprintf(hand->error, sizeof(hand->error), "%s", dp_log_captured(&capture));
    }
    return status;
}

/* ---- a wave, on the main thread ---- */

/* The error of the first bad sample, whoever met it. */
static dp_status read_wave(struct packer *p)
{
    const int threads = p->options->threads;
    const struct hand *first = NULL;
    dp_status status = DP_OK;

    atomic_store(&p->next, 0);
    for (int i = 1; i < threads; i++) {
        dp_worker_start(p->hands[i].worker);
    }
    for (int i = 0; i < threads; i++) {
        struct hand *hand = &p->hands[i];
        const dp_status met = i == 0 ? work(hand) : dp_worker_wait(hand->worker);
        if (met != DP_OK && (first == NULL || hand->bad < first->bad)) {
            first = hand;
            status = met;
        }
    }
    if (first != NULL) {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", first->error);
    }
    return status;
}

static dp_status write_wave(struct packer *p)
{
    const bool floats = p->index.kind == DP_RECORDS_ARRAYS &&
                        p->index.shape.element == DP_ELEMENT_FLOAT && p->set == DP_SET_TRAIN;

    for (size_t i = 0; i < p->count; i++) {
        const struct dp_packed *slot = &p->slots[i];
        const double *label = dp_packed_label(slot);
        DP_TRY(dp_shard_writer_add(p->writer, p->set, slot->memory.data, slot->bytes, label));
        if (floats) {
            dp_statistics_floats(&p->statistics, slot->memory.data,
                                 p->index.shape.count / (size_t)p->statistics.channels);
        }
        p->whole_labels = p->whole_labels && *label >= 0.0 && *label < (double)DP_RECORDS_CLASSES &&
                          *label == floor(*label);
        p->largest_label = *label > p->largest_label ? *label : p->largest_label;
        p->read_bytes += slot->bytes;
    }
    return DP_OK;
}

static void report(const struct packer *p, uint64_t done, uint64_t all)
{
    const struct dp_pack_progress progress = {done, all, p->read_bytes,
                                              (double)(dp_now_ns() - p->begin_ns) / 1e9};

    if (p->options->progress != NULL) {
        p->options->progress(p->options->context, &progress);
    }
}

static dp_status pack_samples(struct packer *p)
{
    const uint64_t *count = p->index.count;
    const uint64_t all = count[DP_SET_TRAIN] + count[DP_SET_TEST];
    uint64_t done = 0;

    for (int set = 0; set < DP_SETS; set++) {
        p->set = (enum dp_set)set;
        for (p->first = 0; p->first < count[set]; p->first += p->count) {
            const uint64_t left = count[set] - p->first;
            if (p->options->stopped != NULL && p->options->stopped()) {
                return DP_STOPPED;
            }
            p->count = left < WAVE ? (size_t)left : WAVE;
            DP_TRY(read_wave(p));
            DP_TRY(write_wave(p));
            done += p->count;
            report(p, done, all);
        }
    }
    return dp_shard_writer_finish(p->writer);
}

/* ---- the folder ---- */

/* Whether it has anything but what packing leaves there when it is killed. */
static dp_status check_folder(const char *dir)
{
    DIR *entries = opendir(dir);
    const struct dirent *entry;
    bool empty = true;

    if (entries == NULL) {
        return DP_FAIL(DP_ERR_WRITE, "%s: %s", dir, strerror(errno));
    }
    while (empty && (entry = readdir(entries)) != NULL) {
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    }
    (void)closedir(entries);
    if (dp_data_file_exists(dir, DP_RECORDS_INDEX)) {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s: holds an " DP_RECORDS_INDEX " already: delete the folder "
                       "first, or name another one",
                       dir);
    }
    return empty || dp_data_file_exists(dir, MARK)
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE,
                         "%s: holds files that ddp_data has not made: name another "
                         "folder, or an empty one",
                         dir);
}

static dp_status take_folder(const char *dir, bool *made, struct dp_lock **lock)
{
    char mark[DP_PATH_BYTES];
    dp_status status;

    *made = dp_disk_mkdir(dir) == 0;
    if (!*made && errno != EEXIST) {
        return dp_file_fail(dir, errno);
    }
    DP_TRY(check_folder(dir));
    DP_TRY(dp_file_join(mark, dir, MARK));
    status = dp_lock_take(mark, "folder of records", "wait for it, or name another folder", lock);
    if (status == DP_OK) {
        dp_shard_writer_clear(dir);
    }
    return status;
}

/* ---- all of it ---- */

/* Whether the flags and the samples go together. */
static dp_status check_options(const struct packer *p, const struct dp_samples_info *info)
{
    const struct dp_pack_options *o = p->options;
    const bool pictures = p->index.kind != DP_RECORDS_ARRAYS;

    if (o->resize > 0 && !pictures) {
        return DP_FAIL(DP_ERR_USAGE, "--resize is for pictures: %s has arrays", o->from);
    }
    if (o->label_numbers > 0 && pictures) {
        return DP_FAIL(DP_ERR_USAGE, "--label-numbers is for arrays: the labels of pictures are "
                                     "the classes of their folders");
    }
    if (o->label_numbers > 1 && info->targets != (size_t)o->label_numbers) {
        return DP_FAIL(DP_ERR_USAGE, "--label-numbers %d: the labels of %s are %zu number%s each",
                       o->label_numbers, o->from, info->targets > 0 ? info->targets : (size_t)1,
                       dp_plural(info->targets > 0 ? info->targets : 1));
    }
    if (info->targets > DP_RECORDS_LABEL) {
        return DP_FAIL(DP_ERR_DATA, "%s: labels of %zu numbers; at most %d are taken", o->from,
                       info->targets, DP_RECORDS_LABEL);
    }
    if (dp_shape_bytes(&info->shape) > DP_SHARD_SAMPLE_BYTES) {
        return DP_FAIL(DP_ERR_DATA, "%s: samples of %zu bytes; at most %d are taken", o->from,
                       dp_shape_bytes(&info->shape), DP_SHARD_SAMPLE_BYTES);
    }
    return DP_OK;
}

/* Sources advise to set data.dir, which is no word of this command. Records are not looked for:
 * they may be at an address, and lie in several folders. */
static dp_status check_from(const char *source, const char *from)
{
    struct stat info;

    if (strcmp(source, "synthetic") == 0) {
        return DP_FAIL(DP_ERR_USAGE, "--source synthetic: has no files to pack: a run with "
                                     "data.source synthetic makes its samples up");
    }
    if (strcmp(source, "records") == 0) {
        return DP_OK;
    }
    if (stat(from, &info) != 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: %s: give the folder of the data set as SRC", from,
                       strerror(errno));
    }
    return S_ISDIR(info.st_mode)
               ? DP_OK
               : DP_FAIL(DP_ERR_NOINPUT,
                         "%s: Not a directory: give the folder of the data set as SRC; unpack an "
                         "archive first",
                         from);
}

static dp_status open_source(struct packer *p, const char *name)
{
    const struct dp_source_config config = {.dir = p->options->from,
                                            .only_train = true,
                                            .label_last = p->options->label_last,
                                            .targets = (size_t)p->options->label_numbers};
    const struct dp_samples_info *info;

    DP_TRY(check_from(name, p->options->from));
    DP_TRY(dp_samples_open(name, &config, &p->samples));
    info = dp_samples_info(p->samples);
    p->index.shape = info->shape;
    p->index.kind = info->shape.count > 0 ? DP_RECORDS_ARRAYS
                    : p->options->decode  ? DP_RECORDS_PIXELS
                                          : DP_RECORDS_PICTURES;
    p->index.label_numbers = info->targets;
    DP_TRY(check_options(p, info));
    for (int set = 0; set < DP_SETS; set++) {
        p->index.count[set] = info->count[set];
    }
    if (info->note[0] != '\0') {
        DP_WARN("%s: %s", p->options->from, info->note);
    }
    return info->any_order ? DP_OK : dp_samples_hold(p->samples);
}

static dp_status start_hands(struct packer *p)
{
    const int threads = p->options->threads;

    p->form = (struct dp_pack_form){.samples = p->samples,
                                    .kind = p->index.kind,
                                    .shape = p->index.shape,
                                    .label_numbers = dp_records_form(&p->index).label_numbers,
                                    .resize = p->options->resize,
                                    .quality = p->options->quality};
    p->statistics.channels = dp_statistics_channels(&p->index.shape);
    p->slots = dp_zalloc(WAVE, sizeof(*p->slots));
    p->hands = dp_zalloc((size_t)threads, sizeof(*p->hands));
    if (p->slots == NULL || p->hands == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "threads that read samples");
    }
    for (int i = 0; i < threads; i++) {
        struct hand *hand = &p->hands[i];
        const struct dp_worker_config config = {
            .name = "pack", .task = "reads samples", .run = work, .context = hand};
        hand->packer = p;
        DP_TRY(dp_pack_maker_create(&p->form, &hand->maker));
        if (i > 0) {
            DP_TRY(dp_worker_create(&config, &hand->worker));
        }
    }
    return DP_OK;
}

static dp_status make_writer(struct packer *p)
{
    const struct dp_shard_writer_config config = {
        .dir = p->options->to,
        .shard_bytes = p->options->shard_bytes,
        .block_bytes = BLOCK_BYTES,
        .form = dp_records_form(&p->index),
        .zstd = p->options->zstd,
    };

    return dp_shard_writer_create(&config, &p->writer);
}

static dp_status save_index(struct packer *p)
{
    const struct dp_samples_info *info = dp_samples_info(p->samples);
    size_t count;
    const struct dp_records_shard *shards = dp_shard_writer_shards(p->writer, &count);

    if (p->index.label_numbers == 0) {
        p->index.classes = info->classes > 0 ? info->classes
                           : p->whole_labels ? (int)p->largest_label + 1
                                             : 0;
        p->index.class_names = info->class_names;
    }
    p->index.block_bytes = BLOCK_BYTES;
    p->index.zstd = p->options->zstd;
    p->index.shards = dp_zalloc(count, sizeof(*shards));
    if (p->index.shards == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: %zu shards", p->options->to, count);
    }
    memcpy(p->index.shards, shards, count * sizeof(*shards));
    p->index.shard_count = count;
    for (int i = 0; i < p->options->threads; i++) {
        dp_pack_maker_sum(p->hands[i].maker, &p->statistics, &p->effect);
    }
    dp_statistics_finish(&p->statistics, p->index.shape.element, &p->index);
    DP_TRY(dp_file_sync_folder(p->options->to));
    return dp_records_index_save(&p->index, p->options->to);
}

static void fill_result(const struct packer *p, struct dp_pack_result *r)
{
    r->samples = p->index.count[DP_SET_TRAIN] + p->index.count[DP_SET_TEST];
    r->shards = p->index.shard_count;
    r->read_bytes = p->read_bytes;
    dp_shard_writer_bytes(p->writer, &r->raw_bytes, &r->stored_bytes);
    r->seconds = (double)(dp_now_ns() - p->begin_ns) / 1e9;
    r->effect = p->effect;
}

static void release(struct packer *p)
{
    for (int i = 0; p->hands != NULL && i < p->options->threads; i++) {
        dp_worker_destroy(p->hands[i].worker);
        dp_pack_maker_destroy(p->hands[i].maker);
    }
    for (int i = 0; p->slots != NULL && i < WAVE; i++) {
        dp_packed_release(&p->slots[i]);
    }
    dp_free(p->hands);
    dp_free(p->slots);
    dp_free(p->index.shards);
    dp_shard_writer_destroy(p->writer);
    dp_samples_close(p->samples);
}

static dp_status pack_into(struct packer *p)
{
    DP_TRY(start_hands(p));
    DP_TRY(make_writer(p));
    DP_TRY(pack_samples(p));
    return save_index(p);
}

dp_status dp_pack(const struct dp_pack_options *options, struct dp_pack_result *result)
{
    struct packer packer = {.options = options, .begin_ns = dp_now_ns(), .whole_labels = true};
    struct dp_lock *lock = NULL;
    bool made = false;
    dp_status status;

    result->source = options->source != NULL ? options->source : dp_pack_source_of(options->from);
    status = open_source(&packer, result->source);
    status = status == DP_OK ? take_folder(options->to, &made, &lock) : status;
    if (status == DP_OK) {
        status = pack_into(&packer);
        if (status == DP_OK) {
            fill_result(&packer, result);
        } else {
            dp_shard_writer_clear(options->to);
        }
        dp_lock_release(lock);
    }
    if (status != DP_OK && made) {
        (void)dp_disk_rmdir(options->to); /* unless it holds anything */
    }
    release(&packer);
    return status;
}
