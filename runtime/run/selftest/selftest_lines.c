#include "runtime/run/selftest/selftest_lines.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

void dp_selftest_line(struct dp_selftest *selftest, bool good, const char *name, const char *format,
                      ...)
{
    char figure[1024];
    va_list args;

    selftest->checks++;
    selftest->failures += !good;
    if (dp_run_leads(selftest->job)) {
        va_start(args, format);
        dp_text_format(figure, sizeof(figure), format, args);
        va_end(args);
        dp_text_line(stdout, "%s %s: %s", good ? "ok" : "FAIL", name, figure);
        (void)fflush(stdout);
    }
}

void dp_selftest_broken(struct dp_selftest *selftest, const char *name, dp_status status,
                        const char *problem)
{
    dp_selftest_line(selftest, false, name, "%s",
                     problem[0] != '\0' ? problem : dp_status_text(status));
}

double dp_selftest_distance(const float *a, const float *b, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum);
}

double dp_selftest_length(const float *a, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)a[i];
    }
    return sqrt(sum);
}

float dp_selftest_noise(uint32_t what, size_t i)
{
    uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(what + 1) * 0xbf58476d1ce4e5b9u;

    /* the finalizer of splitmix64: Steele, Lea and Flood, OOPSLA 2014 */
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    return (float)(bits >> 40) / 8388608.0f - 1.0f;
}

dp_status dp_selftest_weights(const struct dp_run_job *job, float **out)
{
    float *weights = dp_zalloc(job->model->trained, sizeof(float));
    float *running = dp_zalloc(job->model->statistics + 1, sizeof(float));

    if (weights == NULL || running == NULL) {
        dp_free(running);
        dp_free(weights);
        return DP_FAIL(DP_ERR_NOMEM, "initial weights");
    }
    dp_model_init(job->model, (uint64_t)job->config->train.seed, weights, running);
    dp_free(running);
    *out = weights;
    return DP_OK;
}

const struct dp_device *dp_selftest_host_device(const struct dp_selftest *selftest)
{
    const struct dp_device *own = selftest->job->device;

    return own->host_memory
               ? own
               : (const struct dp_device *)dp_plugin_find(&dp_devices, "ref", sizeof("ref") - 1);
}
