/*
 * load_dataset.c - the data set into memory: every rank opens the source, so that mistakes are
 * found before anything is read; then the ranks of each node read it together, or one of them.
 * Files lie with each host, so what is wrong may be wrong on some hosts only, and what they hold
 * may differ: both end all ranks with one line.
 */
#include "runtime/run/dataset/load_dataset.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/core/consistency.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/load_samples.h"
#include "runtime/data/remote/place.h"
#include "runtime/data/row_print.h"
#include "runtime/data/sample_reader.h"
#include "runtime/data/stream/raw_cache.h"
#include "runtime/run/dataset/data_memory.h"
#include "runtime/run/dataset/data_prints.h"
#include "runtime/run/dataset/guest_hosts.h"
#include "runtime/run/dataset/oddities.h"
#include "runtime/run/dataset/stream_dataset.h"

#define PROGRESS_NS 5000000000u /* between two lines about loading */

/* What the ranks of a node share about the set while it is loaded, in front of it. */
struct shared {
    struct dp_data_prints
        prints; /* its writer, which has the rows in its cache, makes them for all:
                                   * another rank would map every page first, which takes ten times
                                   * as long */
    struct dp_load_state load;
};

/* Where everything lies in one piece of memory, after what is shared. */
struct layout {
    size_t samples[DP_SETS], labels[DP_SETS];
    size_t prints[DP_SETS]; /* of rows: row_print.h */
    size_t bad;             /* a flag for each sample, where bad ones are replaced */
    size_t bytes;
};

static bool skips(const struct dp_config *c)
{
    return c->data.on_bad_sample == DP_BAD_SAMPLE_SKIP;
}

static struct layout lay_out(const struct dp_config *c, const struct dp_samples *samples)
{
    const struct dp_samples_info *info = dp_samples_info(samples);

    struct layout l = {.bytes = dp_round_up(sizeof(struct shared), DP_BLOCK)};

    if (dp_samples_absent(samples)) {
        return l;
    }
    for (int set = 0; set < DP_SETS; set++) {
        l.labels[set] = l.bytes;
        l.bytes += dp_round_up(info->count[set] * dp_label_words(info) * sizeof(int32_t), DP_BLOCK);
    }
    for (int set = 0; set < DP_SETS; set++) {
        l.prints[set] = l.bytes;
        l.bytes += dp_round_up(info->count[set] * sizeof(uint32_t), DP_BLOCK);
    }
    for (int set = 0; set < DP_SETS; set++) {
        l.samples[set] = l.bytes;
        l.bytes += dp_round_up(info->count[set] * dp_shape_bytes(&info->shape), DP_BLOCK);
    }
    l.bad = l.bytes;
    l.bytes += skips(c) ? info->count[DP_SET_TRAIN] + info->count[DP_SET_TEST] : 0;
    return l;
}

/* How many classes samples may have. One output tells two of them apart; that of a mean square is a
 * number. */
static int classes_of(const struct dp_model *model)
{
    return model->classes > 1 ? (int)model->classes : model->loss == DP_LOSS_SIGMOID ? 2 : 0;
}

static struct dp_source_config source_config(const struct dp_config *c,
                                             const struct dp_model *model)
{
    const struct dp_data_config *data = &c->data;
    const struct dp_shape *input = &c->model.input;
    const bool image = input->dims == 3;

    return (struct dp_source_config){
        .dir = data->dir,
        .input = {.height = image ? (int)input->dim[0] : 0,
                  .width = image ? (int)input->dim[1] : 0,
                  .channels = image ? (int)input->dim[2] : 0,
                  .count = dp_shape_count(input)},
        .classes = classes_of(model),
        .targets = model->loss == DP_LOSS_SOFTMAX ? 0 : model->classes,
        .shares = model->loss == DP_LOSS_SIGMOID,
        .seed = (uint64_t)c->train.seed,
        .samples = (size_t)data->samples,
        .test_samples = (size_t)data->test_samples,
        .test_fraction = data->test_fraction,
        .resize = (enum dp_resize)data->resize,
        .label_last = data->label == DP_LABEL_LAST,
        .remote_wait_s = data->remote_wait_s,
        .local_cache = data->local_cache,
        .local_cache_bytes = (uint64_t)data->local_cache_mb << 20,
    };
}

static dp_status open_samples(const struct dp_config *c, const struct dp_model *model,
                              struct dp_samples **out)
{
    const struct dp_source_config config = source_config(c, model);

    return dp_samples_open(c->data.source, &config, out);
}

/* What samples and labels are: from here on the model's memory is theirs. */
static void take_kinds(const struct dp_config *c, struct dp_model *model,
                       const struct dp_samples_info *info)
{
    model->pairs = dp_augment_text_mixes(c->data.augment);
    model->float_samples = info->shape.element == DP_ELEMENT_FLOAT;
    model->targets = info->targets;
}

/* Of all files, or blocks, as they are. */
static size_t raw_bytes(const struct dp_samples *samples)
{
    size_t sum = 0;

    for (size_t u = 0; u < dp_samples_info(samples)->units; u++) {
        sum += dp_samples_unit_bytes(samples, u);
    }
    return sum;
}

/* Where data.cache keeps samples, on a host that has the memory for it. */
static size_t kept_bytes(const struct dp_config *c, const struct dp_samples *samples)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    const size_t decoded = lay_out(c, samples).bytes, most = (size_t)c->data.memory_mb << 20;
    const bool fits = most == 0 || decoded <= most;
    size_t raw;

    if (!info->any_order || c->data.cache == DP_CACHE_DECODED ||
        (fits && c->data.cache != DP_CACHE_RAW && c->data.cache != DP_CACHE_NONE)) {
        return decoded;
    }
    raw = c->data.cache != DP_CACHE_NONE && info->units > 0 ? raw_bytes(samples) : 0;
    return sizeof(struct shared) +
           (c->data.cache == DP_CACHE_RAW || most == 0 || raw <= most ? raw : 0);
}

struct dp_data_need dp_run_data_need(const struct dp_config *c, struct dp_model *model)
{
    struct dp_data_need need = {.bytes = 0};
    struct dp_samples *samples = NULL;
    struct dp_log_capture capture;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    if (open_samples(c, model, &samples) == DP_OK) {
        need.rows = dp_samples_info(samples)->count[DP_SET_TRAIN];
        take_kinds(c, model, dp_samples_info(samples));
        need.bytes = kept_bytes(c, samples);
        if (need.bytes < lay_out(c, samples).bytes) {
            need.read_tests = dp_samples_info(samples)->count[DP_SET_TEST];
            need.reader = dp_sample_reader_need(samples);
            need.window = dp_samples_window_bytes(samples, dp_data_window_rows(c, need.rows));
        }
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_samples_close(samples);
    return need;
}

static struct dp_consistency_item count_claim(const char *field, size_t count)
{
    struct dp_consistency_item item = dp_data_claim(field, count);

    (void)snprintf(item.value, sizeof(item.value), "%zu", count);
    return item;
}

static uint64_t hash_names(const struct dp_samples_info *info)
{
    uint64_t hash = 0;

    for (int i = 0; info->class_names != NULL && i < info->classes; i++) {
        hash = XXH3_64bits_withSeed(info->class_names[i], strlen(info->class_names[i]), hash);
    }
    return hash;
}

/* Before memory is made for them, which ranks of a node share. Collective. */
static dp_status compare_counts(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    const struct dp_consistency_item items[] = {
        count_claim("bytes of a sample", dp_shape_bytes(&info->shape)),
        count_claim("numbers of a label", dp_label_words(info)),
        count_claim("training rows", info->count[DP_SET_TRAIN]),
        count_claim("test rows", info->count[DP_SET_TEST]),
        dp_data_claim("list of classes", hash_names(info)),
    };

    return dp_consistency_check(job->world->all, items, sizeof(items) / sizeof(items[0]));
}

/* ---- loading ---- */

/* Rank 0 says how far it is, while it takes long. */
struct report {
    struct dp_progress *progress; /* borrowed */
    uint64_t begin_ns, next_ns;
};

static void tell_progress(void *context, size_t done, size_t all)
{
    struct report *report = context;
    const uint64_t now = dp_now_ns();
    const double seconds = (double)(now - report->begin_ns) / 1e9;
    char count[DP_GROUPED_BYTES], whole[DP_GROUPED_BYTES];

    if (now >= report->next_ns && done > 0) {
        report->next_ns = now + PROGRESS_NS;
        dp_progress_line(report->progress, "loading samples: %s of %s, %.0f s left",
                         dp_grouped_count(count, done), dp_grouped_count(whole, all),
                         seconds * (double)(all - done) / (double)done);
    }
}

/* This rank's part of reading the samples, which all ranks share that have one memory. */
static dp_status read_samples(struct dp_run_job *job, struct dp_load_job *load)
{
    const struct dp_samples_info *info = dp_samples_info(load->samples);
    const bool writer = job->data_memory.writer, reads = !dp_samples_absent(load->samples);
    struct dp_log_capture capture;
    dp_status status = DP_OK, met;
    size_t place = 0;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (info->whole) {
        status = writer && reads ? dp_samples_load(load->samples, load->out, load->labels) : DP_OK;
        return dp_consistency_agree(job->world->all, status, &capture);
    }
    if (!info->any_order && writer && reads) {
        status = dp_samples_hold(load->samples);
    }
    if (status == DP_OK && reads && (info->any_order || writer)) {
        status = dp_load_samples(load, &place);
    }
    met = dp_group_barrier(job->world->all);
    if (place > 0 && place != atomic_load(&load->state->first_bad)) {
        status = DP_OK; /* another rank has met an earlier one */
    }
    return dp_consistency_agree(job->world->all, met == DP_OK ? status : met, &capture);
}

/* Where the first bad sample is to be found. */
static void name_bad(const struct dp_load_job *load, char *text, size_t size)
{
    const size_t *count = dp_samples_info(load->samples)->count;
    size_t at = 0;

    while (at + 1 < count[DP_SET_TRAIN] + count[DP_SET_TEST] && load->bad[at] == 0) {
        at++;
    }
    if (at < count[DP_SET_TRAIN]) {
        dp_samples_name(load->samples, DP_SET_TRAIN, at, text, size);
    } else {
        dp_samples_name(load->samples, DP_SET_TEST, at - count[DP_SET_TRAIN], text, size);
    }
}

/* The writer, after all is there. */
static dp_status finish_samples(struct dp_run_job *job, const struct dp_load_job *load)
{
    const struct dp_samples_info *info = dp_samples_info(load->samples);
    const size_t all = info->count[DP_SET_TRAIN] + info->count[DP_SET_TEST];
    const size_t bad = atomic_load(&load->state->bad);
    char first[DP_PATH_BYTES];

    if (bad * DP_BAD_SHARE > all) {
        name_bad(load, first, sizeof(first));
        return DP_FAIL(DP_ERR_DATA,
                       "%s: %zu of %zu samples %s bad, the first is %s: data.on_bad_sample skip "
                       "replaces at most 1 of %d: mend them, or take them out",
                       job->config->data.dir, bad, all, bad == 1 ? "is" : "are", first,
                       DP_BAD_SHARE);
    }
    return bad == 0 || dp_load_replace(load)
               ? DP_OK
               : DP_FAIL(DP_ERR_DATA, "%s: bad samples leave none to train on, or to test with",
                         job->config->data.dir);
}

static void place_samples(struct dp_run_job *job, const struct layout *l, struct dp_load_job *load)
{
    char *base = job->data_memory.data;

    load->state = &((struct shared *)job->data_memory.data)->load;
    load->bad = skips(job->config) ? (uint8_t *)base + l->bad : NULL;
    for (int set = 0; set < DP_SETS; set++) {
        load->out[set] = (uint8_t *)base + l->samples[set];
        load->labels[set] = (int32_t *)(void *)(base + l->labels[set]);
    }
}

/* Whose memory lacks the samples has none of them. */
static void set_data(struct dp_run_job *job, const struct layout *l, const struct dp_load_job *load)
{
    const struct dp_samples_info *info = dp_samples_info(load->samples);
    const char *base = job->data_memory.data;

    job->data = (struct dp_dataset){.train_count = info->count[DP_SET_TRAIN],
                                    .test_count = info->count[DP_SET_TEST],
                                    .sample_bytes = dp_shape_bytes(&info->shape),
                                    .shape = info->shape};
    if (!dp_samples_absent(load->samples)) {
        job->data.train_images = load->out[DP_SET_TRAIN];
        job->data.test_images = load->out[DP_SET_TEST];
        job->data.train_labels = load->labels[DP_SET_TRAIN];
        job->data.test_labels = load->labels[DP_SET_TEST];
        job->data.train_prints = (const uint32_t *)(const void *)(base + l->prints[DP_SET_TRAIN]);
        job->data.test_prints = (const uint32_t *)(const void *)(base + l->prints[DP_SET_TEST]);
    }
}

/* The writer, once all is as it stays. */
static void print_rows(const struct dp_run_job *job, const struct layout *l, size_t label_words)
{
    const struct dp_dataset *d = &job->data;
    char *base = job->data_memory.data;
    const struct dp_row_prints train = {d->train_images, d->train_labels, d->train_count,
                                        d->sample_bytes, label_words,     NULL};
    const struct dp_row_prints test = {d->test_images,  d->test_labels, d->test_count,
                                       d->sample_bytes, label_words,    NULL};

    dp_row_prints_make(&train, (uint32_t *)(void *)(base + l->prints[DP_SET_TRAIN]));
    dp_row_prints_make(&test, (uint32_t *)(void *)(base + l->prints[DP_SET_TEST]));
}

/* Memory for the samples, filled in by all ranks of the node. Collective. */
static dp_status load_rows(struct dp_run_job *job, struct dp_progress *progress,
                           struct dp_samples *samples)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    const struct layout l = lay_out(job->config, samples);
    struct report report = {progress, dp_now_ns(), dp_now_ns() + PROGRESS_NS};
    struct dp_load_job load = {.samples = samples,
                               .threads = job->threads,
                               .progress = dp_run_leads(job) ? tell_progress : NULL,
                               .context = &report};
    struct dp_log_capture capture;
    struct shared *shared;
    dp_status status;
    bool writes;

    DP_TRY(dp_group_node_memory(job->world->all, DP_MEM_DATA, l.bytes, &job->data_memory));
    shared = job->data_memory.data;
    writes = job->data_memory.writer && !dp_samples_absent(samples);
    place_samples(job, &l, &load);
    DP_TRY(read_samples(job, &load));
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = writes ? finish_samples(job, &load) : DP_OK;
    DP_TRY(dp_consistency_agree(job->world->all, status, &capture));
    set_data(job, &l, &load);
    job->skipped_samples = atomic_load(&shared->load.bad);
    if (writes) {
        print_rows(job, &l, dp_label_words(info));
        shared->prints = dp_data_prints_of_memory(&job->data, dp_label_words(info));
    }
    DP_TRY(dp_group_barrier(job->world->all));
    return dp_run_compare_hosts(job, &shared->prints);
}

static dp_status keep_class_names(struct dp_run_job *job, const struct dp_samples_info *info)
{
    return dp_class_names_copy(&job->class_names, info->class_names, info->classes);
}

/* What a thread works in that reads. A server is asked for a few samples by rank 0 alone, which may
 * lack the files. Collective. */
static dp_status find_reader_need(const struct dp_run_job *job, struct dp_samples *samples,
                                  size_t *need)
{
    const bool remote = dp_place_is_remote(job->config->data.dir);
    size_t of_first;

    *need = !remote || job->world->all->rank == 0 ? dp_sample_reader_need(samples)
                                                  : dp_samples_fetcher_bytes(samples);
    if (remote) {
        of_first = *need;
        DP_TRY(dp_group_broadcast(job->world->all, &of_first, sizeof(of_first), 0));
        *need = of_first > *need ? of_first : *need;
    }
    return DP_OK;
}

/* All of it decoded in memory now, or read when it is needed. Collective. */
static dp_status take_samples(struct dp_run_job *job, struct dp_progress *progress,
                              struct dp_samples *samples)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    const size_t decoded = lay_out(job->config, samples).bytes + dp_guest_bytes(job, info);
    struct dp_data_need need = {.bytes = decoded, .rows = info->count[DP_SET_TRAIN]};
    size_t rows = 0, shared;
    int cache;

    DP_TRY(dp_run_choose_cache(job, samples, decoded, &cache));
    if (cache != DP_CACHE_DECODED) {
        need.bytes = cache == DP_CACHE_RAW && !job->guests.here
                         ? dp_raw_cache_bytes(job->raw_index.data, info->units)
                         : dp_guest_bytes(job, info);
        need.read_tests = job->guests.here ? 0 : info->count[DP_SET_TEST];
        DP_TRY(find_reader_need(job, samples, &need.reader));
        rows = dp_data_window_rows(job->config, need.rows);
        need.window = dp_samples_window_bytes(samples, rows);
    }
    DP_TRY(dp_run_check_data_memory(job, &need));
    shared = dp_data_shared_bytes(job->config, &need, dp_data_readers_here(job));
    DP_TRY(dp_group_agree(job->world->all, dp_samples_share(samples, rows, shared)));
    DP_TRY(cache == DP_CACHE_DECODED ? load_rows(job, progress, samples)
                                     : dp_run_stream_data(job, samples, cache));
    return dp_guest_take_tests(job, samples);
}

/* Where ranks of other hosts read, files may be missing here. */
static dp_status open_here(const struct dp_run_job *job, struct dp_samples **samples, bool *lacks)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = open_samples(job->config, job->model, samples);
    *lacks = status == DP_ERR_NOINPUT && dp_guest_may_be(job);
    dp_log_capture_end(&capture, *lacks ? DP_LOG_DROP : DP_LOG_PRINT);
    return *lacks ? DP_OK : status;
}

dp_status dp_run_load_data(struct dp_run_job *job, struct dp_progress *progress)
{
    struct dp_samples *samples = NULL;
    struct dp_log_capture capture;
    bool lacks = false;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = open_here(job, &samples, &lacks);
    status = dp_guest_meet(job, status, lacks, &samples);
    status = status == DP_OK ? keep_class_names(job, dp_samples_info(samples)) : status;
    status = dp_consistency_agree(job->world->all, status, &capture);
    job->samples = samples;
    DP_TRY(status);
    take_kinds(job->config, job->model, dp_samples_info(samples));
    DP_TRY(compare_counts(job, dp_samples_info(samples)));
    DP_TRY(take_samples(job, progress, samples));
    if (dp_run_leads(job)) {
        dp_run_tell_oddities(job, dp_samples_info(samples));
    }
    if (job->data.samples == NULL) { /* all of it lies in memory */
        dp_samples_close(samples);
        job->samples = NULL;
    }
    return DP_OK;
}

void dp_run_release_data(struct dp_run_job *job)
{
    dp_samples_close(job->samples);
    dp_group_release_node(job->world->all, &job->guests.rows);
    dp_group_release_node(job->world->all, &job->raw_units);
    dp_group_release_node(job->world->all, &job->raw_index);
    dp_group_release_node(job->world->all, &job->data_memory);
}
