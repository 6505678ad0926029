#include "runtime/trainer/micro_batch.h"

#include "base/trace.h"

size_t dp_micro_batch_count(size_t rows, size_t micro_batch)
{
    if (rows == 0 || micro_batch == 0) {
        return 1;
    }
    return (rows + micro_batch - 1) / micro_batch;
}

struct dp_micro_batch dp_micro_batch_at(size_t rows, size_t micro_batch, size_t i)
{
    const size_t k = dp_micro_batch_count(rows, micro_batch);
    const size_t begin = i * rows / k, end = (i + 1) * rows / k;

    return (struct dp_micro_batch){{begin, end - begin}, i > 0, i + 1 == k};
}

size_t dp_micro_batch_most(size_t rows, size_t micro_batch)
{
    return micro_batch == 0 || rows < micro_batch ? rows : micro_batch;
}

dp_status dp_micro_batch_prepare(const struct dp_micro_batches *batches, size_t rows, bool training)
{
    const size_t m = training ? batches->micro_batch : dp_pass_rows(batches->pass);
    size_t before = (size_t)-1;

    for (size_t i = 0; i < dp_micro_batch_count(rows, m); i++) {
        const size_t count = dp_micro_batch_at(rows, m, i).rows.count;
        if (count != before) { /* counts differ by one at most */
            DP_TRY(dp_pass_prepare(batches->pass, count, training));
        }
        before = count;
    }
    return DP_OK;
}

static dp_status feed(const struct dp_micro_batches *batches, const uint8_t *images,
                      const struct dp_pass_call *call)
{
    DP_SPAN(DP_PHASE_COPY, (int64_t)call->rows);

    return dp_pass_feed(batches->pass, images, call->labels, call->rows);
}

static dp_status load_rows(const struct dp_micro_batches *batches, const uint8_t *images,
                           size_t rows)
{
    DP_SPAN(DP_PHASE_COPY, (int64_t)rows);
    const struct dp_normalize *n = batches->normalize;

    return dp_pass_load(batches->pass, images, n->scale, n->shift, n->channels, rows);
}

/* What a pass needs to be queued, or recorded. */
struct pass {
    const struct dp_micro_batches *batches;
    const uint8_t *images;
    struct dp_pass_call call;
};

static dp_status run_pass(void *context, const struct dp_model_hooks *hooks)
{
    struct pass *pass = context;

    pass->call.hooks = hooks;
    DP_TRY(load_rows(pass->batches, pass->images, pass->call.rows));
    DP_TRY(dp_pass_forward(pass->batches->pass, &pass->call));
    return dp_pass_backward(pass->batches->pass, &pass->call);
}

dp_status dp_micro_batch_run(const struct dp_micro_batches *batches, const struct dp_batch *batch,
                             const struct dp_pass_call *call)
{
    const size_t sample = batches->model->values[0].count;
    struct dp_model_hooks quiet = *call->hooks;

    quiet.ready = NULL;
    for (size_t i = 0; i < dp_micro_batch_count(batch->rows, batches->micro_batch); i++) {
        const struct dp_micro_batch micro = dp_micro_batch_at(batch->rows, batches->micro_batch, i);
        struct pass pass = {batches, batch->images + micro.rows.begin * sample, *call};

        pass.call.rows = micro.rows.count;
        pass.call.first_row = batch->first_row + micro.rows.begin;
        pass.call.batch_rows = batch->global_rows;
        pass.call.labels = batch->labels + micro.rows.begin;
        pass.call.keep = micro.adds ? 1.0f : 0.0f;
        DP_TRY(feed(batches, pass.images, &pass.call));
        DP_TRY(dp_graph_capture_run(batches->capture, (int)i, batch->global_rows, run_pass, &pass,
                                    micro.last ? call->hooks : &quiet));
    }
    return DP_OK;
}

size_t dp_micro_batch_evaluations(const struct dp_micro_batches *batches, size_t rows)
{
    return rows == 0 ? 0 : dp_micro_batch_count(rows, dp_pass_rows(batches->pass));
}

dp_status dp_micro_batch_evaluate(const struct dp_micro_batches *batches, const uint8_t *images,
                                  const int32_t *labels, size_t rows, struct dp_range passes,
                                  const struct dp_pass_call *call, double sums[2])
{
    const size_t most = dp_pass_rows(batches->pass),
                 count = dp_micro_batch_evaluations(batches, rows);
    const size_t sample = batches->model->values[0].count;

    for (size_t i = passes.begin; i < count && i < passes.begin + passes.count; i++) {
        const struct dp_range range = dp_micro_batch_at(rows, most, i).rows;
        struct dp_pass_call c = *call;
        float result[2];

        c.rows = range.count;
        c.labels = labels + range.begin;
        DP_TRY(feed(batches, images + range.begin * sample, &c));
        DP_TRY(load_rows(batches, images + range.begin * sample, range.count));
        DP_TRY(dp_pass_evaluate(batches->pass, &c, result));
        sums[0] += (double)result[0];
        sums[1] += (double)result[1];
    }
    return DP_OK;
}
