#include "runtime/run/dataset/stream_dataset.h"

#include "runtime/data/stream/raw_cache.h"
#include "runtime/run/dataset/guest_hosts.h"

/* ---- raw samples in memory ---- */

static dp_status keep_units(struct dp_run_job *job, struct dp_samples *samples)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    struct dp_group *all = job->world->all;
    void *index = job->raw_index.data;
    const bool reads = !dp_samples_absent(samples);
    const size_t bytes = reads ? dp_raw_cache_bytes(index, info->units) : DP_BLOCK;

    DP_TRY(dp_group_node_memory(all, DP_MEM_DATA, bytes, &job->raw_units));
    DP_TRY(dp_group_agree(
        all, reads ? dp_raw_cache_read(samples, index, job->raw_units.data, job->threads) : DP_OK));
    DP_TRY(dp_group_barrier(all));
    if (reads) {
        dp_raw_cache_use(samples, index, job->raw_units.data);
    }
    return DP_OK;
}

dp_status dp_run_compare_hosts(struct dp_run_job *job, const struct dp_data_prints *prints)
{
    struct dp_data_prints mine = *prints;

    DP_TRY(dp_guest_tell(job, &mine, &job->skipped_samples));
    job->spread_labels = mine.spread_labels;
    return dp_data_prints_compare(job->world->all, &mine);
}

/* One rank of each node hashes for all. Collective. */
static dp_status compare_hosts(struct dp_run_job *job, struct dp_samples *samples)
{
    struct dp_group *all = job->world->all;
    struct dp_data_prints *prints;
    dp_status status = DP_OK;

    DP_TRY(dp_group_node_memory(all, DP_MEM_DATA, sizeof(*prints), &job->data_memory));
    prints = job->data_memory.data;
    if (job->data_memory.writer && !dp_samples_absent(samples)) {
        status = dp_data_prints_of_files(samples, prints);
    }
    DP_TRY(dp_group_agree(all, status));
    DP_TRY(dp_group_barrier(all));
    return dp_run_compare_hosts(job, prints);
}

dp_status dp_run_stream_data(struct dp_run_job *job, struct dp_samples *samples, int cache)
{
    const struct dp_samples_info *info = dp_samples_info(samples);

    job->data = (struct dp_dataset){
        .train_count = info->count[DP_SET_TRAIN],
        .test_count = info->count[DP_SET_TEST],
        .sample_bytes = dp_shape_bytes(&info->shape),
        .shape = info->shape,
        .samples = dp_samples_absent(samples) ? NULL : samples,
        .skips = job->config->data.on_bad_sample == DP_BAD_SAMPLE_SKIP,
    };
    if (cache == DP_CACHE_RAW) {
        DP_TRY(keep_units(job, samples));
    }
    return compare_hosts(job, samples);
}
