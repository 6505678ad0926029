#include "runtime/trainer/compute/micro_batch.h"

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
        if (count != before) { /* numbers of rows differ by one at most */
            DP_TRY(dp_pass_prepare(batches->pass, count, training));
        }
        before = count;
    }
    return DP_OK;
}

/* The rows of pass `i` of a batch. */
static struct dp_pass_rows rows_at(const struct dp_micro_batches *batches, const uint8_t *images,
                                   const int32_t *labels, size_t rows, size_t i)
{
    const struct dp_range range = dp_micro_batch_at(rows, batches->micro_batch, i).rows;

    return (struct dp_pass_rows){images + range.begin * dp_model_sample_bytes(batches->model),
                                 labels + range.begin * dp_model_train_words(batches->model),
                                 range.count, false};
}

static dp_status load_rows(const struct dp_micro_batches *batches, const struct dp_pass_rows *rows)
{
    DP_SPAN(DP_PHASE_COPY, (int64_t)rows->count);
    const struct dp_normalize *n = batches->normalize;

    return dp_pass_load(batches->pass, rows, n->scale, n->shift, n->channels);
}

static dp_status send_rows(const struct dp_micro_batches *batches, const struct dp_batch *batch,
                           size_t i)
{
    DP_SPAN(DP_PHASE_COPY, (int64_t)batch->rows);
    const struct dp_pass_rows rows = rows_at(batches, batch->images, batch->labels, batch->rows, i);

    return dp_pass_send(batches->pass, &rows);
}

dp_status dp_micro_batch_send(const struct dp_micro_batches *batches, const struct dp_batch *next)
{
    return send_rows(batches, next, 0);
}

/* What queueing or recording a pass needs. */
struct pass {
    const struct dp_micro_batches *batches;
    struct dp_pass_call call;
    bool last; /* of the batch */
};

static dp_status run_pass(void *context, const struct dp_model_hooks *hooks)
{
    struct pass *pass = context;

    const struct dp_micro_batches *batches = pass->batches;

    pass->call.hooks = hooks;
    DP_TRY(dp_pass_forward(batches->pass, &pass->call));
    DP_TRY(dp_pass_backward(batches->pass, &pass->call));
    return pass->last && batches->after != NULL ? batches->after(batches->after_context) : DP_OK;
}

dp_status dp_micro_batch_run(const struct dp_micro_batches *batches, const struct dp_batch *batch,
                             const struct dp_pass_call *call)
{
    struct dp_model_hooks quiet = *call->hooks;

    quiet.ready = NULL;
    for (size_t i = 0; i < dp_micro_batch_count(batch->rows, batches->micro_batch); i++) {
        const struct dp_micro_batch micro = dp_micro_batch_at(batch->rows, batches->micro_batch, i);
        const struct dp_pass_rows rows =
            rows_at(batches, batch->images, batch->labels, batch->rows, i);
        struct pass pass = {batches, *call, micro.last};

        pass.call.rows = micro.rows.count;
        pass.call.first_row = batch->first_row + micro.rows.begin;
        pass.call.batch_rows = batch->global_rows;
        pass.call.labels = rows.labels;
        pass.call.keep = micro.adds ? 1.0f : 0.0f;
        DP_TRY(load_rows(batches, &rows));
        DP_TRY(dp_graph_capture_run(batches->capture, (int)i, batch->global_rows, run_pass, &pass,
                                    micro.last ? call->hooks : &quiet));
        DP_TRY(micro.last ? DP_OK : send_rows(batches, batch, i + 1));
    }
    return DP_OK;
}

size_t dp_micro_batch_evaluations(const struct dp_micro_batches *batches, size_t rows)
{
    return rows == 0 ? 0 : dp_micro_batch_count(rows, dp_pass_rows(batches->pass));
}

dp_status dp_micro_batch_evaluate(const struct dp_micro_batches *batches, struct dp_test_rows *test,
                                  int user, struct dp_range rows, struct dp_range passes,
                                  const struct dp_pass_call *call, double sums[DP_EVALUATION_SUMS])
{
    const size_t most = dp_pass_rows(batches->pass),
                 count = dp_micro_batch_evaluations(batches, rows.count);

    for (size_t i = passes.begin; i < count && i < passes.begin + passes.count; i++) {
        const struct dp_range range = dp_micro_batch_at(rows.count, most, i).rows;
        struct dp_pass_rows part = {.count = range.count, .evaluated = true};
        struct dp_pass_call c = *call;
        float result[DP_EVALUATION_SUMS];

        DP_TRY(dp_test_rows_get(test, user, rows.begin + range.begin, range.count, &part.images,
                                &part.labels));
        c.rows = range.count;
        c.labels = part.labels;
        DP_TRY(load_rows(batches, &part));
        DP_TRY(dp_pass_evaluate(batches->pass, &c, result));
        for (int k = 0; k < DP_EVALUATION_SUMS; k++) {
            sums[k] += (double)result[k];
        }
    }
    return DP_OK;
}
