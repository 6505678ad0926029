/*
 * test_exchange_jobs.c - gradients of a device that has memory of its own: what is done with a
 * bucket on its way to its sum and back, in which order, by functions in the place of those that
 * copy (staging.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/staging.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/strategy.h"
#include "tests/support/local_world.h"

/* Bucket 0 is of the last tensor, and 2 is the tail. */
enum {
    TENSORS = 2,
    FIRST = 4 * DP_BLOCK,
    TRAINED = FIRST + 2 * DP_BLOCK,
    TOTAL = TRAINED + DP_BLOCK,
    MADE = 10, /* of the tail, on the device */
    PIECE = DP_BLOCK
};

static const struct dp_tensor tensors[TENSORS] = {{.begin = 0}, {.begin = FIRST}};
static const size_t begins[] = {FIRST, 0, TRAINED};

static struct dp_device far; /* the reference, in other memory than the host's */

/* ---- what was called, on this rank ---- */

static _Thread_local struct {
    char calls[1024];
    const float *host;
    float device[TOTAL];
    struct dp_gpu_peers peers;
    atomic_int *cancel;
    uint64_t there_ns[3]; /* when the first piece of each bucket was */
    int wrong;            /* arguments */
} rank;

__attribute__((format(printf, 1, 2))) static dp_status note(const char *format, ...)
{
    const size_t used = strlen(rank.calls);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(rank.calls + used, sizeof(rank.calls) - used, format, args);
    va_end(args);
    return DP_OK;
}

/* A range of bucket b, from its begin on. */
static dp_status note_range(const char *what, int b, struct dp_range range)
{
    return note("%s %d %zu+%zu; ", what, b, range.begin - begins[b], range.count);
}

static struct dp_staging *const staging = (struct dp_staging *)(void *)&far;

dp_status dp_staging_create(struct dp_group *group, const struct dp_staging_config *config,
                            struct dp_staging **out)
{
    (void)group;
    rank.host = config->host;
    *out = staging;
    return DP_OK;
}

void dp_staging_destroy(struct dp_staging *s)
{
    (void)s;
}

float *dp_staging_gradient(const struct dp_staging *s)
{
    rank.wrong += s != staging;
    return rank.device;
}

const struct dp_device *dp_staging_device(const struct dp_staging *s)
{
    rank.wrong += s != staging;
    return &far;
}

struct dp_stream *dp_staging_stream(const struct dp_staging *s)
{
    (void)s;
    return NULL;
}

void *dp_staging_weights(const struct dp_staging *s)
{
    (void)s;
    return NULL;
}

void dp_staging_pin(struct dp_staging *s, struct dp_range range)
{
    (void)s, (void)range;
}

void dp_staging_follow(struct dp_staging *s, struct dp_stream *stream, void *weights, void *shared,
                       size_t width)
{
    (void)s, (void)stream, (void)weights, (void)shared, (void)width;
}

dp_status dp_staging_download(struct dp_staging *s, int b)
{
    rank.wrong += s != staging;
    return note("download %d; ", b);
}

int dp_staging_pieces(const struct dp_staging *s, int b)
{
    rank.wrong += s != staging;
    return b == 0 ? 2 : b == 1 ? 4 : 1;
}

struct dp_range dp_staging_piece(const struct dp_staging *s, int b, int i)
{
    rank.wrong += s != staging || i < 0 || i >= dp_staging_pieces(s, b);
    return (struct dp_range){begins[b] + (size_t)i * PIECE, b == 2 ? MADE : PIECE};
}

dp_status dp_staging_wait(const struct dp_staging *s, int b, int i, const atomic_int *cancel)
{
    rank.wrong += s != staging || cancel != rank.cancel;
    rank.there_ns[b] = rank.there_ns[b] > 0 ? rank.there_ns[b] : dp_now_ns();
    return note("wait %d.%d; ", b, i);
}

dp_status dp_staging_upload(struct dp_staging *s, int b, struct dp_range range)
{
    rank.wrong += s != staging;
    return note_range("upload", b, range);
}

dp_status dp_staging_download_weights(struct dp_staging *s, int b, struct dp_range mine)
{
    rank.wrong += s != staging;
    return note_range("download weights", b, mine);
}

dp_status dp_staging_upload_weights(struct dp_staging *s, int b)
{
    rank.wrong += s != staging;
    return note("upload weights %d; ", b);
}

dp_status dp_staging_ready(struct dp_staging *s, int b)
{
    rank.wrong += s != staging;
    return note("ready %d; ", b);
}

dp_status dp_staging_begin(struct dp_staging *s, int b, struct dp_stream *other)
{
    rank.wrong += s != staging || other != rank.peers.stream;
    return note("begin %d; ", b);
}

dp_status dp_staging_end(struct dp_staging *s, int b, struct dp_stream *other)
{
    rank.wrong += s != staging || other == NULL;
    return note("end %d %s; ", b, other == rank.peers.stream ? "of gpus" : "of codes");
}

dp_status dp_staging_take(struct dp_staging *s, int b)
{
    rank.wrong += s != staging;
    return note("take %d; ", b);
}

dp_status dp_staging_done(const struct dp_staging *s, int b, bool *done)
{
    rank.wrong += s != staging;
    *done = true;
    return note("done %d; ", b);
}

dp_status dp_staging_read(const struct dp_staging *s, float *host, const float *device,
                          size_t count)
{
    (void)s;
    memcpy(host, device, count * sizeof(*host));
    return DP_OK;
}

dp_status dp_staging_write(const struct dp_staging *s, float *device, const float *host,
                           size_t count)
{
    return dp_staging_read(s, device, host, count);
}

/* ---- strategies that sum nothing, on the host and on GPUs ---- */

static bool supports(const struct dp_group *group, const char **why_not)
{
    (void)group, (void)why_not;
    return true;
}

static dp_status open(void *state, struct dp_group *group, size_t max_count)
{
    (void)state, (void)group, (void)max_count;
    return DP_OK;
}

static dp_status sum_on_host(void *state, struct dp_slice data, enum dp_keep keep)
{
    (void)state;
    return note("sum %zu+%zu%s; ", (size_t)((float *)data.data - rank.host), data.count,
                keep == DP_KEEP_ALL ? "" : " in part");
}

static dp_status sum_on_gpus(void *state, struct dp_slice data, enum dp_keep keep)
{
    (void)state;
    return note("sum on gpus %zu+%zu%s; ", (size_t)((float *)data.data - rank.device), data.count,
                keep == DP_KEEP_ALL ? "" : " in part");
}

static dp_status gather(void *state, struct dp_slice data)
{
    (void)state;
    return note("gather %zu; ", dp_slice_bytes(data));
}

static void close(void *state)
{
    (void)state;
}

static const struct dp_strategy on_host = {
    .plugin = {.name = "on_host", .help = "for this test", .state_bytes = 8},
    .supports = supports,
    .open = open,
    .sum = sum_on_host,
    .gather = gather,
    .close = close,
};
static const struct dp_strategy on_gpus = {
    .plugin = {.name = "on_gpus", .help = "for this test", .state_bytes = 8},
    .on_gpus = true,
    .supports = supports,
    .open = open,
    .sum = sum_on_gpus,
    .gather = gather,
    .close = close,
};

/* ---- their exchange ---- */

struct setup {
    int ranks;
    const char *strategy, *compressor;
    bool alone;           /* a step that shares only the tail */
    const char *calls[4]; /* for each bucket, and to publish weights, of rank 0 */
};

/* Whether what was called is what is wanted; other ranks do the same with other parts. */
static size_t differs(const struct dp_group *group, const char *wanted)
{
    const bool same = group->rank > 0 || strcmp(rank.calls, wanted) == 0;

    if (!same) {
        (void)printf("not \"%s\", but \"%s\"\n", wanted, rank.calls);
    }
    rank.calls[0] = '\0';
    return !same;
}

/* Whether bucket b is said to be ready, and its communication to begin, before it was there. */
static size_t is_early(const struct dp_exchange *e, int b)
{
    const struct dp_bucket_times *times = dp_exchange_times(e);
    const uint64_t there_ns = rank.there_ns[b] > 0 ? rank.there_ns[b] - times->begin_ns : 0;

    return times->sums[b].ready_ns < there_ns || times->sums[b].sent_ns < there_ns;
}

static size_t step(struct dp_exchange *e, const struct setup *s)
{
    const struct dp_group *group = dp_exchange_group(e);
    size_t wrong = 0;

    rank.calls[0] = '\0';
    for (size_t i = 0; i < TRAINED; i++) {
        rank.device[i] = (float)(group->rank + 1);
    }
    dp_exchange_begin(e, s->alone);
    for (int b = 0; b < 3; b++) {
        wrong += (b < 2 ? dp_exchange_ready(e, 1 - b) : dp_exchange_ready_tail(e)) != DP_OK;
        wrong += dp_exchange_wait(e, b) != DP_OK;
        wrong += differs(group, s->calls[b]) + is_early(e, b);
    }
    for (size_t i = 0; i < TRAINED && s->compressor != NULL; i++) {
        wrong += rank.device[i] != 3.0f; /* of two ranks */
    }
    wrong += dp_exchange_publish(e, 0) != DP_OK || dp_exchange_publish(e, 1) != DP_OK ||
             dp_exchange_end(e) != DP_OK;
    return wrong + differs(group, s->calls[3]);
}

static size_t run(struct dp_group *group, const void *arg)
{
    const struct setup *s = arg;
    const struct dp_step_params params = {.lr = 0.0f};
    const struct dp_exchange_config config = {.strategy = s->strategy,
                                              .compressor = s->compressor,
                                              .step_params = &params,
                                              .bucket_bytes = DP_BLOCK * sizeof(float),
                                              .first_bucket_bytes = DP_BLOCK * sizeof(float),
                                              .run = DP_RUN_AT_WAIT,
                                              .tail_made = MADE,
                                              .device = &far,
                                              .threads = 1};
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = TENSORS,
                           .trained = TRAINED,
                           .total = TOTAL,
                           .owned = TRAINED};
    struct dp_exchange *e = NULL;
    size_t wrong;

    memset(&rank, 0, sizeof(rank));
    rank.cancel = group->cancel;
    if (far.stream_create(&far, 1, &rank.peers.stream) != DP_OK) {
        return 1;
    }
    group->gpus = &rank.peers;
    wrong = dp_exchange_create(group, &config, &flat, &e) != DP_OK || step(e, s) > 0;
    group->gpus = NULL; /* no other rank uses this one's memory */
    dp_exchange_destroy(e);
    far.stream_destroy(rank.peers.stream);
    return wrong + (size_t)rank.wrong;
}

#define TAIL_THERE "download 2; wait 2.0; wait 2.0; "
#define TAIL TAIL_THERE "sum 384+64; upload 2 0+10; take 2; "

static void each_bucket_goes_its_way_in_order(void **state)
{
    static const struct setup cases[] = {
        {2,
         "on_host",
         NULL,
         false,
         {"download 0; wait 0.0; wait 0.0; sum 256+64; upload 0 0+64; "
          "wait 0.1; sum 320+64; upload 0 64+64; take 0; ",
          "download 1; wait 1.0; wait 1.0; sum 0+64; upload 1 0+64; "
          "wait 1.1; sum 64+64; upload 1 64+64; wait 1.2; sum 128+64; upload 1 128+64; "
          "wait 1.3; sum 192+64; upload 1 192+64; take 1; ",
          TAIL, ""}},
        {1, "on_host", NULL, false, {"", "", TAIL_THERE "sum 384+64; ", ""}},
        {2, "on_host", NULL, true, {"", "", TAIL, ""}},
        {2,
         "zero1:over=on_host",
         NULL,
         false,
         {"download 0; wait 0.0; wait 0.1; sum 256+128 in part; upload 0 0+64; take 0; ",
          "download 1; wait 1.0; wait 1.3; sum 0+256 in part; upload 1 0+128; take 1; ", TAIL,
          "download weights 0 0+64; download weights 1 0+128; wait 0.0; gather 512; "
          "upload weights 0; wait 1.0; gather 1024; upload weights 1; "}},
        {2,
         "on_host",
         "fp16",
         false,
         {"ready 0; wait 0.0; end 0 of codes; take 0; ",
          "ready 1; wait 1.0; end 1 of codes; take 1; ", TAIL, ""}},
        {2,
         "on_gpus",
         NULL,
         false,
         {"ready 0; begin 0; sum on gpus 256+128; end 0 of gpus; take 0; ",
          "ready 1; begin 1; sum on gpus 0+256; end 1 of gpus; take 1; ",
          TAIL_THERE "upload 2 0+10; take 2; ", "done 0; done 1; "}},
        {1, "on_gpus", NULL, false, {"", "", TAIL_THERE, "done 0; done 1; "}},
        {2,
         "zero1:over=on_gpus",
         NULL,
         false,
         {"ready 0; begin 0; sum on gpus 256+128 in part; end 0 of gpus; take 0; ",
          "ready 1; begin 1; sum on gpus 0+256 in part; end 1 of gpus; take 1; ",
          TAIL_THERE "upload 2 0+10; take 2; ",
          "ready 0; ready 1; begin 0; gather 512; end 0 of gpus; take 0; begin 1; gather 1024; "
          "end 1 of gpus; take 1; done 0; done 1; "}},
    };
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_ranks(cases[i].ranks, run, &cases[i]) != 0) {
            fail_msg("case %zu, %s on %d ranks", i, cases[i].strategy, cases[i].ranks);
        }
        assert_int_equal(dp_mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bucket_goes_its_way_in_order),
    };
    const struct dp_device *ref = NULL;

    if (dp_device_find("ref", &ref) != DP_OK ||
        dp_plugin_add(&dp_strategies, &on_host.plugin) != DP_OK ||
        dp_plugin_add(&dp_strategies, &on_gpus.plugin) != DP_OK) {
        return 1;
    }
    far = *ref;
    far.host_memory = false;
    return cmocka_run_group_tests_name("exchange_jobs", tests, NULL, NULL);
}
