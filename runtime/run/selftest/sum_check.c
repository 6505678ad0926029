#include "runtime/run/selftest/sum_check.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/compressors/compression.h"
#include "runtime/run/selftest/thread_ranks.h"

enum { THREAD_RANKS = 4, PIECE = 65536, STEPS = 2 };

/* Of a code of 8 bits, which is made once by each rank and once of the sum. */
static const double code_bound = 2.0 / 127.0;
static const double kept_bound = 2e-6; /* a few roundings of float32 */

/* One strategy or compressor, over all ranks. */
struct check {
    const struct dp_run_job *job;
    struct dp_bucket_plan *plan; /* borrowed */
    const struct dp_device *device;
    const char *name;
    atomic_ulong wrong; /* numbers, over all ranks that are threads; or splits of ranks */
    double worst;       /* rank 0, compressors: of what came in */
    uint64_t with, without;
    int ranks;
};

/* ---- numbers ---- */

/* Small integers, whose sum is exact in any order. */
static float integer_value(int rank, size_t i)
{
    return (float)((i + 3 * (size_t)rank) % 17);
}

/* Numbers of very different sizes: another order gives other bits. */
static float mixed_value(int rank, size_t i)
{
    const float x = dp_selftest_noise((uint32_t)rank, i);

    return x * (float)(1u << (i * 7 % 16));
}

/* The order of the one binary tree. */
static float tree_sum(int first, int count, size_t i, /* NOLINT(misc-no-recursion) */
                      float (*value)(int rank, size_t i))
{
    int left = 1;

    if (count == 1) {
        return value(first, i);
    }
    while (2 * left < count) {
        left *= 2;
    }
    const float a = tree_sum(first, left, i, value);
    const float b = tree_sum(first + left, count - left, i, value);
    return a + b;
}

/* ---- strategies ---- */

static dp_status sum_buckets(struct check *c, struct dp_comm *comm, float *grad)
{
    const int rank = comm->group->rank, size = comm->group->size;
    const bool ordered = dp_strategy_keeps_order(comm->strategy, comm->state, comm->group);
    float (*const value)(int, size_t) = ordered ? mixed_value : integer_value;
    unsigned long wrong = 0;

    for (int b = 0; b < c->plan->count; b++) {
        const struct dp_range range = c->plan->buckets[b].range;
        const struct dp_slice slice = {grad + range.begin, range.count, sizeof(float)};
        for (size_t i = range.begin; i < range.begin + range.count; i++) {
            grad[i] = value(rank, i);
        }
        DP_TRY(dp_comm_sum(comm, slice, DP_KEEP_ALL));
        for (size_t i = range.begin; i < range.begin + range.count; i++) {
            wrong += grad[i] != tree_sum(0, size, i, value);
        }
    }
    (void)atomic_fetch_add(&c->wrong, wrong);
    return DP_OK;
}

static size_t total_of(const struct check *c)
{
    const struct dp_range tail = c->plan->buckets[c->plan->count - 1].range;

    return tail.begin + tail.count;
}

static dp_status check_strategy(struct dp_group *group, void *context)
{
    struct check *c = context;
    float *grad = dp_group_memory(group, DP_MEM_GRADIENTS, total_of(c) * sizeof(float));
    struct dp_comm *comm = NULL;
    dp_status status = DP_ERR_NOMEM;

    if (grad != NULL) {
        status = dp_comm_create(group, c->name, c->plan->largest, DP_BLOCK, &comm);
        status = status == DP_OK ? sum_buckets(c, comm, grad) : status;
        if (status != DP_OK) {
            dp_group_leave(group, status);
        }
        dp_comm_destroy(comm);
    }
    dp_group_release(group, grad);
    return status;
}

/* ---- compressors ---- */

/* Element i of a rank's gradient in a step: of many sizes, and with something in common. */
static float gradient_value(int rank, uint32_t step, size_t i)
{
    const float x = dp_selftest_noise(8 + (uint32_t)rank + 97 * step, i);

    return 0.1f * dp_selftest_noise(7, i / 64) + x * x * x;
}

struct compressing {
    struct check *check;
    struct dp_group *group;
    struct dp_comm *comm;
    struct dp_compression *compression;
    struct dp_step_params step_params;
    struct dp_stream *codes;
    float *grad, *before, *all; /* [total]; [trained], what residuals held before; [size PIECE] */
    double *kept;               /* [PIECE] */
};

/* Of elements [begin, begin + count): the sum over ranks and residuals, to `kept`. */
static dp_status gather_kept(const struct compressing *x, size_t begin, size_t count)
{
    memset(x->kept, 0, count * sizeof(*x->kept));
    for (int r = 0; r < x->compression->residuals; r++) {
        DP_TRY(dp_group_allgather(x->group, x->compression->residual[r] + begin,
                                  count * sizeof(float), x->all));
        for (size_t i = 0; i < count * (size_t)x->group->size; i++) {
            x->kept[i % count] += (double)x->all[i];
        }
    }
    return DP_OK;
}

/* How far sent and kept are from what came in, of its size. */
static double imbalance(const struct compressing *x, size_t begin, size_t count)
{
    double worst = 0.0;

    for (size_t i = 0; i < count; i++) {
        double came = (double)x->before[begin + i], size = fabs(came) + 1.0, off;
        for (int rank = 0; rank < x->group->size; rank++) {
            const double g = (double)gradient_value(rank, x->step_params.step, begin + i);
            came += g;
            size += 1.0 + fabs(g);
        }
        off = fabs((double)x->grad[begin + i] + x->kept[i] - came) / size;
        worst = off <= worst ? worst : off;
    }
    return worst;
}

/* One tensor, in pieces; gaps between tensors are not of it. */
static dp_status balance_tensor(const struct compressing *x, const struct dp_tensor *t)
{
    for (size_t at = 0; at < t->count; at += PIECE) {
        const size_t left = t->count - at, count = left < PIECE ? left : PIECE;
        const size_t begin = t->begin + at;
        DP_TRY(gather_kept(x, begin, count));
        if (x->group->rank == 0) {
            const double off = imbalance(x, begin, count);
            x->check->worst = off <= x->check->worst ? x->check->worst : off;
        }
        for (size_t i = 0; i < count; i++) {
            x->before[begin + i] = (float)x->kept[i];
        }
    }
    return DP_OK;
}

/* Whether all ranks have the same sums, piece by piece. */
static dp_status compare_ranks(const struct compressing *x, size_t trained)
{
    for (size_t at = 0; at < trained; at += PIECE) {
        const size_t left = trained - at, count = left < PIECE ? left : PIECE;
        DP_TRY(dp_group_allgather(x->group, x->grad + at, count * sizeof(float), x->all));
        for (int r = 1; r < x->group->size; r++) {
            if (memcmp(x->all, x->all + (size_t)r * count, count * sizeof(float)) != 0) {
                (void)atomic_fetch_add(&x->check->wrong, 1);
            }
        }
    }
    return DP_OK;
}

static dp_status compress_step(struct compressing *x)
{
    const struct dp_model *m = x->check->job->model;
    const int rank = x->group->rank;

    memset(x->grad, 0, m->trained * sizeof(float));
    for (int t = 0; t < m->tensor_count; t++) {
        const struct dp_tensor *tensor = &m->tensors[t];
        for (size_t i = tensor->begin; i < tensor->begin + tensor->count; i++) {
            x->grad[i] = gradient_value(rank, x->step_params.step, i);
        }
    }
    for (int b = 0; b < x->check->plan->count - 1; b++) {
        DP_TRY(dp_compression_sum(x->compression, b, DP_KEEP_ALL));
    }
    DP_TRY(compare_ranks(x, m->trained));
    for (int t = 0; t < m->tensor_count; t++) {
        DP_TRY(balance_tensor(x, &m->tensors[t]));
    }
    x->step_params.step++;
    return DP_OK;
}

static dp_status open_compressing(struct compressing *x)
{
    struct check *c = x->check;
    const size_t trained = c->job->model->trained;
    const struct dp_compression_config config = {c->name, &x->step_params, 5};

    x->before = dp_zalloc(trained, sizeof(float));
    x->kept = dp_zalloc(PIECE, sizeof(double));
    x->all = dp_zalloc((size_t)x->group->size * PIECE, sizeof(float));
    x->grad = dp_group_memory(x->group, DP_MEM_GRADIENTS, total_of(c) * sizeof(float));
    if (x->before == NULL || x->kept == NULL || x->all == NULL || x->grad == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "the arrays of a selftest");
    }
    DP_TRY(dp_comm_create(x->group, "auto", c->plan->largest, DP_BLOCK, &x->comm));
    DP_TRY(c->device->stream_create(c->device, 1, &x->codes));
    x->comm->codes = x->codes;
    return dp_compression_create(x->comm, c->plan, x->grad, trained, &config, &x->compression);
}

static dp_status check_compressor(struct dp_group *group, void *context)
{
    struct compressing x = {.check = context, .group = group, .step_params = {.factor = 1.0f}};
    dp_status status = open_compressing(&x);

    for (int step = 0; status == DP_OK && step < STEPS; step++) {
        status = compress_step(&x);
    }
    if (status != DP_OK) {
        dp_group_leave(group, status);
    } else if (group->rank == 0) {
        dp_compression_wire(x.compression, DP_KEEP_ALL, &x.check->with, &x.check->without);
    }
    dp_compression_destroy(x.compression);
    dp_comm_destroy(x.comm);
    x.check->device->stream_destroy(x.codes);
    dp_group_release(group, x.grad);
    dp_free(x.all);
    dp_free(x.kept);
    dp_free(x.before);
    return status;
}

/* ---- all of them ---- */

/* On all ranks of the job, or on threads. *ran: it could; else its line is printed. */
static dp_status run_check(struct dp_selftest *selftest, struct check *c, const char *line,
                           dp_rank_body *body, bool *ran)
{
    struct dp_group *all = c->job->world->all;
    char problem[DP_LOG_CAPTURE_BYTES];
    unsigned long wrong, sum = 0;
    dp_status status;

    *ran = true;
    if (all->size == 1) {
        status = dp_thread_ranks_run(c->ranks, c->device, body, c, problem);
        if (status != DP_OK) {
            dp_selftest_broken(selftest, line, status, problem);
            *ran = false;
        }
        return DP_OK;
    }
    DP_TRY(body(all, c));
    wrong = atomic_load(&c->wrong);
    for (int root = 0; root < all->size; root++) {
        unsigned long theirs = wrong;
        DP_TRY(dp_group_broadcast(all, &theirs, sizeof(theirs), root));
        sum += theirs;
    }
    atomic_store(&c->wrong, sum);
    return DP_OK;
}

static dp_status check_strategies(struct dp_selftest *selftest, struct check *c)
{
    struct dp_group *all = c->job->world->all;
    const struct dp_plugin *plugin;
    const char *why_not;
    char line[64];
    bool ran;

    for (int i = 0; (plugin = dp_plugin_at(&dp_strategies, i)) != NULL; i++) {
        const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
        const bool threads = all->size == 1;
        if (strategy->sum == NULL || strategy->gpus ||
            (threads ? strcmp(plugin->name, "mpi") == 0 : !strategy->supports(all, &why_not))) {
            continue;
        }
        c->name = plugin->name;
        atomic_store(&c->wrong, 0);
        (void)snprintf(line, sizeof(line), "strategy.%s", plugin->name);
        DP_TRY(run_check(selftest, c, line, check_strategy, &ran));
        if (ran) {
            dp_selftest_line(selftest, atomic_load(&c->wrong) == 0, line,
                             "%lu of %zu numbers in %d buckets wrong, on %d ranks",
                             (unsigned long)atomic_load(&c->wrong), total_of(c) * (size_t)c->ranks,
                             c->plan->count, c->ranks);
        }
    }
    return DP_OK;
}

static void judge_compressor(struct dp_selftest *selftest, const struct check *c, const char *line,
                             bool keeps)
{
    const double bound = keeps ? kept_bound : code_bound;

    if (c->wrong > 0) {
        dp_selftest_line(selftest, false, line, "%d ranks have different sums", c->ranks);
        return;
    }
    dp_selftest_line(selftest, c->worst <= bound, line,
                     "%s %.1e from what came in (at most %.0e), %.3g of its bytes, on %d ranks",
                     keeps ? "sent and kept are" : "sums are", c->worst, bound,
                     (double)c->with / (double)c->without, c->ranks);
}

static dp_status check_compressors(struct dp_selftest *selftest, struct check *c)
{
    const struct dp_plugin *plugin;
    char line[64];
    bool ran;

    for (int i = 0; (plugin = dp_plugin_at(&dp_compressors, i)) != NULL; i++) {
        const struct dp_compressor *compressor = (const struct dp_compressor *)plugin;
        if (compressor->sum == NULL) {
            continue;
        }
        c->name = plugin->name;
        c->worst = 0.0;
        atomic_store(&c->wrong, 0);
        (void)snprintf(line, sizeof(line), "compressor.%s", plugin->name);
        DP_TRY(run_check(selftest, c, line, check_compressor, &ran));
        if (ran) {
            judge_compressor(selftest, c, line, compressor->residuals != NULL);
        }
    }
    return DP_OK;
}

static dp_status check_both(struct dp_selftest *selftest, struct check *c)
{
    struct dp_group *all = c->job->world->all;
    struct dp_stream *const before = all->stream;
    struct dp_stream *stream = NULL;
    dp_status status;

    DP_TRY(dp_group_agree(all, c->device->stream_create(c->device, 1, &stream)));
    all->stream = stream;
    status = check_strategies(selftest, c);
    status = status == DP_OK ? check_compressors(selftest, c) : status;
    all->stream = before;
    c->device->stream_destroy(stream);
    return status;
}

dp_status dp_sum_check(struct dp_selftest *selftest)
{
    const struct dp_run_job *job = selftest->job;
    const struct dp_model *m = job->model;
    const struct dp_comm_config *comm = &job->config->comm;
    const double mb = 1048576.0 / sizeof(float);
    const struct dp_bucket_sizes sizes = {.first_count = (size_t)(comm->first_bucket_mb * mb),
                                          .max_count = (size_t)(comm->bucket_mb * mb)};
    struct check c = {.job = job,
                      .device = dp_selftest_host_device(selftest),
                      .ranks = job->world->all->size > 1 ? job->world->all->size : THREAD_RANKS};
    dp_status status = dp_bucket_plan_create(m->tensors, m->tensor_count, m->trained,
                                             m->trained + DP_BLOCK, &sizes, &c.plan);

    status = dp_group_agree(job->world->all, status);
    status = status == DP_OK ? check_both(selftest, &c) : status;
    dp_bucket_plan_destroy(c.plan);
    return status;
}
