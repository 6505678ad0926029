#include "runtime/control/stop_criteria.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- early stopping ---- */

const char *dp_improvement_metric(const struct dp_early_stop_config *config)
{
    static const char *const names[] = {[DP_METRIC_TEST_ACCURACY] = "test_accuracy",
                                        [DP_METRIC_TEST_LOSS] = "test_loss",
                                        [DP_METRIC_TRAIN_LOSS] = "train_loss",
                                        [DP_METRIC_TEST_ERROR] = "test_mean_absolute_error"};

    return names[config->metric];
}

void dp_improvement_add(struct dp_improvement *i, const struct dp_early_stop_config *config,
                        double metric)
{
    const double gain =
        config->metric == DP_METRIC_TEST_ACCURACY ? metric - i->best : i->best - metric;

    if (isfinite(metric) && (i->seen == 0 || gain > config->min_delta)) {
        i->best = metric;
        i->waited = 0;
    } else {
        i->waited++;
    }
    i->seen += isfinite(metric) ? 1 : 0;
}

bool dp_improvement_ended(const struct dp_improvement *i, const struct dp_early_stop_config *config)
{
    return config->patience > 0 && i->waited >= (uint64_t)config->patience;
}

/* ---- failures ---- */

bool dp_spike_add(struct dp_spike *s, const struct dp_failure_stop_config *config, double loss)
{
    const double deviation = fmax(sqrt(s->variance), 1e-3 * fabs(s->mean));
    const double weight = fmax(1.0 / (double)(s->count + 1), 2.0 / (config->spike_window + 1.0));
    const double off = loss - s->mean;

    if (config->spike_sigma > 0.0 && s->count >= (uint64_t)config->spike_window &&
        off > config->spike_sigma * deviation) {
        return true;
    }
    s->mean += weight * off;
    s->variance = (1.0 - weight) * (s->variance + weight * off * off);
    s->count++;
    return false;
}

bool dp_is_chance(double correct, double rows, size_t classes)
{
    const double p = 1.0 / (double)classes;

    return rows > 0.0 && correct / rows <= p + 2.0 * sqrt(p * (1.0 - p) / rows);
}

/* Adds the step's answers and returns whether they are guesses. Judged once, after step `last`, or
 * after the next one if that was skipped. */
static bool is_stuck(struct dp_chance *chance, uint64_t last,
                     const struct dp_stop_criteria_step *step)
{
    if (step->step <= last / 2) {
        return false;
    }
    if (step->step <= last) {
        chance->correct += step->correct;
        chance->rows += step->rows;
    }
    if (step->step < last) {
        return false;
    }
    if (dp_is_chance(chance->correct, chance->rows, step->classes)) {
        return true;
    }
    *chance = (struct dp_chance){0.0, 0.0};
    return false;
}

bool dp_stop_criteria_failed(struct dp_stop_criteria *stop_criteria,
                             const struct dp_failure_stop_config *config,
                             const struct dp_stop_criteria_step *step, char *reason, size_t size)
{
    const struct dp_spike *s = &stop_criteria->spike;
    const unsigned long long number = step->step;

    if (!isfinite(step->loss)) {
        (void)snprintf(reason, size,
                       "step %llu: the loss is not a number; try a lower optimizer.lr, a warm-up "
                       "(optimizer.schedule.warmup_steps), or optimizer.clip_norm",
                       number);
        return config->nan;
    }
    if (step->whole && dp_spike_add(&stop_criteria->spike, config, step->loss)) {
        (void)snprintf(reason, size,
                       "step %llu: the loss of %.4g is more than %g deviations of %.4g above its "
                       "mean of %.4g (failure_stop.spike_sigma); try a lower optimizer.lr, or "
                       "optimizer.clip_norm",
                       number, step->loss, config->spike_sigma, sqrt(s->variance), s->mean);
        return true;
    }
    if (config->chance_steps > 0 &&
        is_stuck(&stop_criteria->chance, (uint64_t)config->chance_steps, step)) {
        (void)snprintf(
            reason, size,
            "step %llu: no progress: %.2f %% of %.0f training answers were right, by "
            "chance alone it is %.2f %% (failure_stop.chance_steps); look at the labels, "
            "or try another optimizer.lr",
            number, 100.0 * stop_criteria->chance.correct / stop_criteria->chance.rows,
            stop_criteria->chance.rows, 100.0 / (double)step->classes);
        return true;
    }
    return false;
}

void dp_stop_criteria_add_state(struct dp_stop_criteria *stop_criteria, struct dp_state_dict *list)
{
    dp_state_dict_add_u64(list, "evaluation.step", &stop_criteria->evaluated_at);
    dp_state_dict_add_f64(list, "early_stop.best", &stop_criteria->improvement.best);
    dp_state_dict_add_u64(list, "early_stop.seen", &stop_criteria->improvement.seen);
    dp_state_dict_add_u64(list, "early_stop.waited", &stop_criteria->improvement.waited);
    dp_state_dict_add_f64(list, "spike.mean", &stop_criteria->spike.mean);
    dp_state_dict_add_f64(list, "spike.variance", &stop_criteria->spike.variance);
    dp_state_dict_add_u64(list, "spike.count", &stop_criteria->spike.count);
    dp_state_dict_add_f64(list, "chance.correct", &stop_criteria->chance.correct);
    dp_state_dict_add_f64(list, "chance.rows", &stop_criteria->chance.rows);
}

bool dp_all_finite(const float *data, size_t count)
{
    const uint32_t exponent = 0x7f800000; /* all of its bits are set only in infinities and NaNs */
    uint32_t bits, bad = 0;

    for (size_t i = 0; i < count; i++) {
        memcpy(&bits, &data[i], sizeof(bits));
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}

/* ---- speed ---- */

bool dp_throughput_add(struct dp_throughput *throughput, double floor, uint64_t step_ns,
                       uint64_t samples)
{
    throughput->ns += step_ns;
    throughput->samples += samples;
    throughput->steps++;
    if (throughput->steps < DP_THROUGHPUT_STEPS || throughput->ns < DP_THROUGHPUT_NS) {
        return false;
    }
    throughput->rate = (double)throughput->samples * 1e9 / (double)throughput->ns;
    throughput->ns = throughput->samples = throughput->steps = 0;
    return throughput->rate < floor;
}
