#include "runtime/run/check_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/run/dataset/load_dataset.h"
#include "runtime/run/place.h"
#include "runtime/run/run_model.h"
#include "runtime/trainer/prepare/memory_check.h"

/* What there is: limits of this host and, where ranks compute on GPUs, one of these. */
struct room {
    struct dp_memory_limits limits;
    bool on_gpus;
    struct dp_device_room gpu;
};

/* Whether all ranks would fit into every memory limit of this host. */
static enum dp_memory_fit fit_here(const struct dp_memory_limits *limits,
                                   const size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    enum dp_memory_fit worst = DP_MEMORY_FITS;

    for (int i = 0; i < limits->count; i++) {
        const enum dp_memory_fit fit = dp_memory_fit(bytes, &limits->limit[i]);
        worst = fit > worst ? fit : worst;
    }
    return worst;
}

static struct dp_memory_ranks ranks_of(const struct dp_memory_plan *plan)
{
    const struct dp_config *c = plan->config;

    return (struct dp_memory_ranks){.trainers = plan->trainers,
                                    .servers = c->comm.servers,
                                    .readers = c->data.input_ranks,
                                    .evaluators = c->train.eval_rank,
                                    .first = true,
                                    .leads = true};
}

/* A rank's own memory, without the data set, which is the host's. */
static void rank_bytes(const struct dp_memory_plan *plan, bool leads,
                       size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    const size_t micro_batch = (size_t)plan->config->train.micro_batch;
    const struct dp_memory_ranks one = {.trainers = 1, .first = true, .leads = leads};
    struct dp_memory_plan own = *plan;

    own.data_bytes = 0;
    if (plan->device->host_memory) {
        dp_memory_plan_host(&own, &one, micro_batch, bytes);
    } else {
        dp_memory_plan_device(&own, micro_batch, bytes);
    }
}

/* Whether a rank has room on a GPU of its own, or computes on none. */
static bool fits_gpu(const struct room *room, const struct dp_memory_plan *plan)
{
    return !room->on_gpus || dp_memory_fits_device(plan, &room->gpu);
}

/* A dp_recompute_fits: of all ranks on this host; the context is its room. */
static bool fits_here(const void *context, const struct dp_memory_plan *plan)
{
    const struct room *room = context;
    const struct dp_memory_ranks all = ranks_of(plan);
    const size_t budget = (size_t)plan->config->report.memory_budget_mb << 20;
    size_t bytes[DP_MEM_PURPOSE_COUNT];

    rank_bytes(plan, true, bytes);
    if ((budget > 0 && dp_memory_plan_sum(bytes) > budget) || !fits_gpu(room, plan)) {
        return false;
    }
    dp_memory_plan_host(plan, &all, (size_t)plan->config->train.micro_batch, bytes);
    return fit_here(&room->limits, bytes) == DP_MEMORY_FITS;
}

static dp_status cut_to_fit(const struct dp_memory_plan *plan, struct dp_model *m,
                            const struct room *room)
{
    return plan->config->model.recompute == DP_RECOMPUTE_AUTO
               ? dp_recompute_choose(plan, m, fits_here, room)
               : DP_OK;
}

static const struct {
    const char *name;
    int width;
} memory_columns[] = {{"weights", 10},   {"gradients", 11}, {"optimizer", 11}, {"activations", 13},
                      {"residuals", 11}, {"snapshot", 10},  {"other", 7},      {"one host", 10}};
enum { RANK_COLUMNS = 6 };

static const char *fit_text(const struct dp_memory_plan *plan, const struct room *room,
                            const size_t host[DP_MEM_PURPOSE_COUNT])
{
    static const char *const fits[] = {"fits here", "is tight here", "does NOT fit here"};

    if (!fits_gpu(room, plan)) {
        return "does NOT fit the GPU";
    }
    return room->limits.count > 0 ? fits[fit_here(&room->limits, host)] : "";
}

/* A rank's own memory, and then what all ranks take of one host. */
static void print_ranks(const struct dp_memory_plan *plan, const struct room *room)
{
    const struct dp_config *c = plan->config;
    const struct dp_memory_ranks all = ranks_of(plan);
    const size_t micro_batch = (size_t)c->train.micro_batch;
    const struct dp_share share =
        dp_share_of(c, plan->model, plan->trainers, micro_batch, plan->threads);
    const double mb = 1048576.0;
    size_t rank[DP_MEM_PURPOSE_COUNT], host[DP_MEM_PURPOSE_COUNT];
    double shown = 0.0;

    rank_bytes(plan, false, rank);
    dp_memory_plan_host(plan, &all, micro_batch, host);
    const double columns[RANK_COLUMNS] = {
        (double)rank[DP_MEM_WEIGHTS],   (double)rank[DP_MEM_GRADIENTS],
        (double)rank[DP_MEM_OPTIMIZER], (double)rank[DP_MEM_ACTIVATIONS],
        (double)rank[DP_MEM_RESIDUALS], (double)host[DP_MEM_CHECKPOINT],
    };
    printf("%2d rank%-4s", plan->trainers, dp_plural(plan->trainers));
    for (int i = 0; i < RANK_COLUMNS; i++) {
        printf("%*.1f", memory_columns[i].width, columns[i] / mb);
        shown += i == 5 ? 0.0 : columns[i];
    }
    printf("%*.1f%*.1f (%zu row%s%s) %s\n", memory_columns[RANK_COLUMNS].width,
           ((double)dp_memory_plan_sum(rank) - shown) / mb, memory_columns[RANK_COLUMNS + 1].width,
           (double)dp_memory_plan_sum(host) / mb, share.rows, dp_plural(share.rows),
           c->train.lanes > 0 ? " a lane" : "", fit_text(plan, room, host));
}

/* What the columns are, and what there is. */
static void print_limits(const struct dp_memory_plan *plan, const struct room *room)
{
    const double mb = 1048576.0;

    printf("snapshot: of a checkpoint, on rank 0 alone; other: batches, messages, libraries\n");
    if (plan->data_bytes > 0) {
        printf("one host: all ranks together, and the data set, %.1f MB, once\n",
               (double)plan->data_bytes / mb);
    } else {
        printf("one host: all ranks together, without the data set, which is not found here\n");
    }
    if (room->on_gpus) {
        printf("%s, one for each rank: %.1f MB, %.1f MB available\n", room->gpu.name,
               (double)room->gpu.total / mb, (double)room->gpu.left / mb);
    }
    for (int i = 0; i < room->limits.count; i++) {
        const struct dp_memory_limit *limit = &room->limits.limit[i];
        printf("%s: %.1f MB, %.1f MB available\n",
               limit->name[0] != '\0' ? limit->name : "this host", (double)limit->total / mb,
               (double)limit->available / mb);
    }
}

static const int cases[] = {1, 2, 4, 8}; /* ranks */

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* Of each rank in each case. */
static dp_status find_threads(const struct dp_run_options *options, int threads[CASES])
{
    struct dp_machine *machine;

    DP_TRY(dp_machine_create(&machine));
    for (int i = 0; i < CASES; i++) {
        threads[i] = dp_run_threads(options, dp_machine_threads(machine, cases[i]),
                                    machine->threads, i == 0);
    }
    dp_machine_destroy(machine);
    return DP_OK;
}

/* Master weights count as weights: under zero1 a rank has only its part of them. */
dp_status dp_run_check_memory(const struct dp_run_options *options, const struct dp_config *c,
                              struct dp_model *m, const struct dp_device *device)
{
    char recompute[CASES][DP_RECOMPUTE_TEXT] = {""};
    int threads[CASES];
    struct room room = {.on_gpus = false};
    struct dp_memory_plan plan = {.config = c,
                                  .model = m,
                                  .device = device,
                                  .ranks_per_device = 1,
                                  .one_node = true,
                                  .saves = strcmp(c->comm.strategy, "none") != 0};

    const struct dp_data_need need = dp_run_data_need(c, m);
    DP_TRY(find_threads(options, threads));
    plan.data_bytes = need.bytes;
    plan.train_count = need.rows;
    plan.read_tests = need.read_tests;
    plan.reader_bytes = need.reader;
    dp_memory_limits_read("", &room.limits);
    if (!device->host_memory && device->room != NULL) {
        room.on_gpus = true;
        device->room(&room.gpu);
    }
    printf("\nMB per rank");
    for (size_t i = 0; i < sizeof(memory_columns) / sizeof(memory_columns[0]); i++) {
        printf("%*s", memory_columns[i].width, memory_columns[i].name);
    }
    printf("\n");
    for (int i = 0; i < CASES; i++) {
        if (c->train.lanes > 0 && cases[i] > c->train.lanes) {
            break;
        }
        plan.trainers = cases[i];
        plan.threads = threads[i];
        plan.shared_bytes = dp_data_shared_bytes(
            c, &need, c->data.input_ranks > 0 ? c->data.input_ranks : cases[i]);
        DP_TRY(cut_to_fit(&plan, m, &room));
        print_ranks(&plan, &room);
        DP_TRY(c->model.recompute == DP_RECOMPUTE_OFF
                   ? DP_OK
                   : dp_recompute_describe(&plan, m, recompute[i]));
    }
    print_limits(&plan, &room);
    for (int i = 0; i < CASES && recompute[i][0] != '\0'; i++) {
        printf("%srecompute, %d rank%s: %s\n", i == 0 ? "\n" : "", cases[i], dp_plural(cases[i]),
               recompute[i]);
    }
    return DP_OK;
}
