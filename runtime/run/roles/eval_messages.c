#include "runtime/run/roles/eval_messages.h"

size_t dp_eval_weight_bytes(const struct dp_run_job *job)
{
    return job->model->trained * dp_type_bytes(dp_precision_type(job->config->train.precision));
}

void dp_eval_load_post(struct dp_run_job *job, struct dp_eval_load *load, dp_eval_post *post,
                       int peer, void *weights, float *running)
{
    size_t left = dp_eval_weight_bytes(job);
    char *data = weights;

    load->count = 0;
    while (left > 0) {
        const size_t bytes = left < DP_MESSAGE_MAX ? left : DP_MESSAGE_MAX;
        post(&job->p2p, &load->parts[load->count++], peer, data, bytes);
        data += bytes;
        left -= bytes;
    }
    post(&job->p2p, &load->parts[load->count++], peer, running,
         job->model->statistics * sizeof(*running));
}

dp_status dp_eval_load_wait(struct dp_p2p *p2p, const struct dp_eval_load *load)
{
    for (int i = 0; i < load->count; i++) {
        DP_TRY(dp_p2p_wait(p2p, &load->parts[i]));
    }
    return DP_OK;
}
