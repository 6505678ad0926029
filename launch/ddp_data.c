/*
 * ddp_data.c - packs data sets into records, and checks, times and unpacks them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/stdio.h"
#include "base/log.h"
#include "base/text.h"

/* Not runtime/lockstep.h, which trains: this program only reads and writes data sets. */
#include "runtime/data/records/block.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/records/unpack.h"
#include "runtime/data/source.h"
#include "runtime/report/live/progress.h"

static const char help[] =
    "usage: ddp_data pack SRC DST [flags]\n"
    "       ddp_data info|verify|time DST\n"
    "       ddp_data unpack DST [FOLDER]\n"
    "\n"
    "Packs, checks and times data sets.\n"
    "\n"
    "pack    writes the data set in the folder SRC (class folders of pictures, IDX,\n"
    "        CIFAR-10, CSV, npy) into the folder DST, for data.source records\n"
    "info    prints what DST holds, and data.normalize for it\n"
    "verify  reads all of DST, and names the first damage\n"
    "unpack  writes npy files, or class folders of pictures, into FOLDER; without it\n"
    "        into DST.unpacked\n"
    "time    prints how fast DST is read, in order and shuffled, and by stage\n"
    "\n"
    "flags of pack:\n"
    "  --shard-mb N    MB of a shard, about; 100\n"
    "  --zstd LEVEL    compresses each block: 1 is fast, 19 small\n"
    "  --resize N      makes pictures smaller: their shorter side is at most N\n"
    "  --quality N     of JPEG files that --resize makes, 1 to 100; 90\n"
    "  --decode        stores pictures as pixels\n"
    "  --label-numbers K  labels are K numbers, as train.loss mse takes, not classes\n"
    "  --source NAME   of SRC, as data.source; found out by its files\n"
    "  --label-last    as data.label last, of csv\n"
    "\n"
    "  --version       prints the version\n"
    "  --help          prints this text\n"
    "\n"
    "exit codes: 0; 64 wrong usage; 65 bad data; 66 input is missing; 74 a file\n"
    "cannot be written; 75 stopped by a signal: nothing is left\n";

enum { ARGUMENTS = 3, SHARD_MB_MOST = 1 << 20, SIDE_MOST = 16384, TIME_S = 3, REMOTE_WAIT_S = 60 };

struct options {
    const char *words[ARGUMENTS]; /* the command, and its folders */
    int count;
    struct dp_pack_options pack;
    bool help, version;
};

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

static bool stopped(void)
{
    return signalled != 0;
}

static void take_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* ---- the command line ---- */

static dp_status take_number(const char *flag, const char *text, int least, int most, int *out)
{
    char *end = NULL;
    long value;

    errno = 0;
    value = text != NULL && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    if (end == NULL || *end != '\0' || errno != 0 || value < least || value > most) {
        return DP_FAIL(DP_ERR_USAGE, "%s: a number from %d to %d must follow; see ddp_data --help",
                       flag, least, most);
    }
    *out = (int)value;
    return DP_OK;
}

static dp_status take_source(const char *text, struct dp_pack_options *pack)
{
    if (text == NULL || dp_plugin_find(&dp_sources, text, strlen(text)) == NULL) {
        return DP_FAIL(DP_ERR_USAGE, "--source: a source must follow, as ddp_train --list sources "
                                     "names them");
    }
    pack->source = text;
    return DP_OK;
}

/* A flag that has a value, after it or behind '='. */
static dp_status take_value(const char *flag, const char *value, struct dp_pack_options *pack)
{
    int number = 0, least, most;

    dp_block_levels(&least, &most);
    if (strcmp(flag, "--shard-mb") == 0) {
        DP_TRY(take_number(flag, value, 1, SHARD_MB_MOST, &number));
        pack->shard_bytes = (uint64_t)number << 20;
        return DP_OK;
    }
    if (strcmp(flag, "--zstd") == 0) {
        return take_number(flag, value, least, most, &pack->zstd);
    }
    if (strcmp(flag, "--resize") == 0) {
        return take_number(flag, value, 1, SIDE_MOST, &pack->resize);
    }
    if (strcmp(flag, "--quality") == 0) {
        return take_number(flag, value, 1, 100, &pack->quality);
    }
    if (strcmp(flag, "--label-numbers") == 0) {
        return take_number(flag, value, 1, DP_RECORDS_LABEL, &pack->label_numbers);
    }
    if (strcmp(flag, "--source") == 0) {
        return take_source(value, pack);
    }
    return DP_FAIL(DP_ERR_USAGE, "%s: unknown flag; see ddp_data --help", flag);
}

static dp_status parse_flag(int argc, char **argv, int *at, struct options *o)
{
    const char *argument = argv[*at], *equals = strchr(argument, '=');
    char flag[32];
    const size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);

    (void)snprintf(flag, sizeof(flag), "%.*s", (int)(length < 31 ? length : 31), argument);
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        o->help = true;
    } else if (strcmp(argument, "--version") == 0) {
        o->version = true;
    } else if (strcmp(argument, "--decode") == 0) {
        o->pack.decode = true;
    } else if (strcmp(argument, "--label-last") == 0) {
        o->pack.label_last = true;
    } else if (equals != NULL) {
        return take_value(flag, equals + 1, &o->pack);
    } else {
        const char *value = *at + 1 < argc ? argv[*at + 1] : NULL;
        *at += 1;
        return take_value(flag, value, &o->pack);
    }
    return DP_OK;
}

static dp_status parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            DP_TRY(parse_flag(argc, argv, &i, o));
        } else if (o->count < ARGUMENTS) {
            o->words[o->count++] = argv[i];
        } else {
            return DP_FAIL(DP_ERR_USAGE, "%s: too many folders; see ddp_data --help", argv[i]);
        }
    }
    return DP_OK;
}

/* ---- pack ---- */

static void show_progress(void *context, const struct dp_pack_progress *p)
{
    struct dp_progress *out = context;
    static double due = 0.5; /* seconds */
    const double rate = p->seconds > 0.0 ? (double)p->done / p->seconds : 0.0;
    char done[DP_GROUPED_BYTES], all[DP_GROUPED_BYTES], speed[DP_GROUPED_BYTES];

    if (p->seconds < due || p->done == p->all) {
        return;
    }
    due = p->seconds + (out->terminal ? 0.2 : 5.0);
    (void)dp_grouped_count(done, p->done);
    (void)dp_grouped_count(all, p->all);
    (void)dp_grouped(speed, rate);
    if (out->terminal) {
        dp_progress_rewrite(out, "packing: %s of %s samples, %s samples/s, %.0f s left", done, all,
                            speed, (double)(p->all - p->done) / rate);
    } else {
        dp_progress_line(out, "packing: %s of %s samples, %s samples/s, %.0f s left", done, all,
                         speed, (double)(p->all - p->done) / rate);
    }
}

/* What is done once now, and not in every epoch. */
static void print_effect(const struct dp_pack_options *pack, const struct dp_pack_effect *e)
{
    const double before = (double)e->decode_ns / 1e9, after = (double)e->resized_decode_ns / 1e9;

    if (e->resized > 0) {
        (void)printf("resized %llu of %llu pictures: %.1f MB of %s became %.1f MB\n",
                     (unsigned long long)e->resized, (unsigned long long)e->pictures,
                     (double)e->bytes / 1048576.0, pack->decode ? "pixels" : "files",
                     (double)e->resized_bytes / 1048576.0);
    }
    if (pack->decode && e->pictures > 0) {
        (void)printf("decoding took %.1f s of processor time, which every epoch saves from now "
                     "on\n",
                     before);
    } else if (e->resized > 0) {
        (void)printf("decoding takes %.1f s of processor time in every epoch, instead of %.1f s\n",
                     after, before);
    }
}

static dp_status pack(struct options *o)
{
    struct dp_progress progress;
    struct dp_pack_result r = {.source = NULL};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    dp_status status;

    take_signals();
    dp_progress_init(&progress, stdout, dp_progress_on_terminal(false), false);
    dp_progress_make_way(false);
    o->pack.from = o->words[1];
    o->pack.to = o->words[2];
    o->pack.threads = cores < 1 ? 1 : cores > 64 ? 64 : (int)cores;
    o->pack.stopped = stopped;
    o->pack.progress = show_progress;
    o->pack.context = &progress;
    status = dp_pack(&o->pack, &r);
    dp_progress_erase(&progress);
    if (status == DP_STOPPED) {
        DP_WARN("%s: stopped by a signal, nothing is left there: pack again to start over",
                o->pack.to);
    }
    DP_TRY(status);
    dp_text_line(stdout,
                 "packed %llu samples of source %s into %llu shard%s of %s: %.1f MB in %.1f s",
                 (unsigned long long)r.samples, r.source, (unsigned long long)r.shards,
                 dp_plural(r.shards), o->pack.to, (double)r.stored_bytes / 1048576.0, r.seconds);
    if (r.stored_bytes < r.raw_bytes) {
        (void)printf("zstd: %.1f MB became %.1f %% of that\n", (double)r.raw_bytes / 1048576.0,
                     100.0 * (double)r.stored_bytes / (double)r.raw_bytes);
    }
    print_effect(&o->pack, &r.effect);
    return DP_OK;
}

/* ---- info, verify, time ---- */

/* As data.normalize takes it: a channel that is the same everywhere is divided by nothing. */
static void print_normalize(const struct dp_records_index *index)
{
    (void)printf("normalize: {mean: [");
    for (int i = 0; i < index->channels; i++) {
        (void)printf("%s%.6g", i > 0 ? ", " : "", index->mean[i]);
    }
    (void)printf("], std: [");
    for (int i = 0; i < index->channels; i++) {
        (void)printf("%s%.6g", i > 0 ? ", " : "", index->std[i] > 1e-12 ? index->std[i] : 1.0);
    }
    (void)printf("]}\n");
}

static void info(const struct dp_records *records)
{
    const struct dp_records_index *index = dp_records_index(records);
    const struct dp_sample_shape *s = &index->shape;
    uint64_t bytes = 0;

    for (size_t i = 0; i < index->shard_count; i++) {
        bytes += index->shards[i].bytes;
    }
    (void)printf("samples: %llu to train on, %llu to test with\n",
                 (unsigned long long)index->count[DP_SET_TRAIN],
                 (unsigned long long)index->count[DP_SET_TEST]);
    if (index->kind != DP_RECORDS_ARRAYS) {
        (void)printf("each: a picture, %s\n",
                     index->kind == DP_RECORDS_PIXELS ? "as pixels" : "as its file");
    } else if (s->height > 0) {
        (void)printf("each: %d x %d x %d of %s\n", s->height, s->width, s->channels,
                     s->element == DP_ELEMENT_FLOAT ? "float32" : "uint8");
    } else {
        (void)printf("each: %zu of %s\n", s->count,
                     s->element == DP_ELEMENT_FLOAT ? "float32" : "uint8");
    }
    if (index->label_numbers > 0) {
        (void)printf("labels: %zu number%s each\n", index->label_numbers,
                     dp_plural(index->label_numbers));
    } else {
        (void)printf("classes: %d\n", index->classes);
    }
    for (int i = 0; index->class_names != NULL && i < index->classes; i++) {
        dp_text_line(stdout, "  %d %s", i, index->class_names[i]);
    }
    (void)printf("shards: %zu, %.1f MB, blocks of %llu KB, ", index->shard_count,
                 (double)bytes / 1048576.0, (unsigned long long)(index->block_bytes >> 10));
    if (index->zstd != 0) {
        (void)printf("zstd level %d\n", index->zstd);
    } else {
        (void)printf("not compressed\n");
    }
    if (index->channels > 0) {
        print_normalize(index);
    }
}

static void print_timing(const char *name, const struct dp_records_timing *t)
{
    char rate[DP_GROUPED_BYTES];
    const double us = 1e6 / (double)(t->samples > 0 ? t->samples : 1);

    (void)dp_grouped(rate, (double)t->samples / t->seconds);
    (void)printf("%-10s %14s %8.3f %8.3f %8.2f %8.2f %10.2f %8.2f\n", name, rate,
                 (double)t->sample_bytes / t->seconds / 1e9,
                 (double)t->stored_bytes / t->seconds / 1e9, t->take_s * us, t->check_s * us,
                 t->expand_s * us, t->decode_s * us);
}

static dp_status time_reading(const struct dp_records *records)
{
    struct dp_records_timing timing;

    (void)printf("one thread, at most %d s each; GB are 10^9 bytes\n\n", TIME_S);
    (void)printf("%-10s %14s %8s %8s %8s %8s %10s %8s\n", "", "", "samples", "files", "read",
                 "hash", "decompress", "decode");
    (void)printf("%-10s %14s %8s %8s %8s %8s %10s %8s\n", "order", "samples/s", "GB/s", "GB/s",
                 "us", "us", "us", "us");
    DP_TRY(dp_records_time(records, false, TIME_S, &timing));
    print_timing("sequential", &timing);
    DP_TRY(dp_records_time(records, true, TIME_S, &timing));
    print_timing("shuffled", &timing);
    return DP_OK;
}

static dp_status unpack(const struct options *o, const struct dp_records *records)
{
    char folder[DP_PATH_BYTES];
    const size_t length = strlen(o->words[1]);
    const char *to = o->words[2];
    dp_status status;

    if (to == NULL) { /* without slashes at its end */
        const char *from = o->words[1];
        size_t end = length;
        while (end > 1 && from[end - 1] == '/') {
            end--;
        }
        (void)snprintf(folder, sizeof(folder), "%.*s.unpacked", (int)end, from);
        to = folder;
    }
    take_signals();
    status = dp_records_unpack(records, to, stopped);
    if (status == DP_STOPPED) {
        DP_WARN("%s.part: stopped by a signal: delete it before you unpack again", to);
    }
    DP_TRY(status);
    dp_text_line(stdout, "unpacked %s into %s", o->words[1], to);
    return DP_OK;
}

static dp_status look(const struct options *o)
{
    const struct dp_shard_store_config config = {.dir = o->words[1], .patience_s = REMOTE_WAIT_S};
    struct dp_records *records;
    dp_status status = DP_OK;

    DP_TRY(dp_records_open(&config, &records));
    if (strcmp(o->words[0], "info") == 0) {
        info(records);
    } else if (strcmp(o->words[0], "time") == 0) {
        status = time_reading(records);
    } else if (strcmp(o->words[0], "unpack") == 0) {
        status = unpack(o, records);
    } else {
        status = dp_records_verify(records);
        if (status == DP_OK) {
            dp_text_line(stdout, "%s: whole, all hashes match", o->words[1]);
        }
    }
    dp_records_close(records);
    return status;
}

static dp_status answer(struct options *o)
{
    static const char *const lookers[] = {"info", "verify", "time", "unpack"};
    const char *command = o->words[0];

    if (o->help || o->version) {
        (void)printf("%s", o->help ? help : "lockstep " DP_VERSION "\n");
        return DP_OK;
    }
    if (o->count == ARGUMENTS && strcmp(command, "pack") == 0) {
        return pack(o);
    }
    if (o->count == ARGUMENTS && strcmp(command, "unpack") == 0) {
        return look(o);
    }
    for (size_t i = 0; o->count == 2 && i < sizeof(lookers) / sizeof(lookers[0]); i++) {
        if (strcmp(command, lookers[i]) == 0) {
            return look(o);
        }
    }
    return DP_FAIL(DP_ERR_USAGE,
                   "ddp_data pack SRC DST, or info, verify, time or unpack with one folder; "
                   "see ddp_data --help");
}

int main(int argc, char **argv)
{
    struct options options = {.pack = {.shard_bytes = (uint64_t)100 << 20, .quality = 90}};
    dp_status status = dp_stdio_open();

    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error, as a full disk is */
    status = parse(argc, argv, &options);
    status = status == DP_OK ? answer(&options) : status;
    return dp_status_exit(dp_stdio_finish(status, true));
}
