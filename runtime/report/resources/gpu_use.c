#include "runtime/report/resources/gpu_use.h"

#include <math.h>

static void add_known(double *sum, uint64_t *count, double value)
{
    if (isfinite(value)) {
        *sum += value;
        (*count)++;
    }
}

static void add_energy(struct dp_gpu_use *use, const struct dp_gpu_reading *r, uint64_t now_ns)
{
    if (use->last_ns == 0) {
        return;
    }
    if (r->joules > use->last_joules) { /* false where one is not known */
        use->counted_joules += r->joules - use->last_joules;
    }
    if (isfinite(r->watts)) {
        use->power_joules += r->watts * (double)(now_ns - use->last_ns) / 1e9;
    }
}

void dp_gpu_use_add(struct dp_gpu_use *use, const struct dp_gpu_reading *r, uint64_t now_ns)
{
    use->readings++;
    add_known(&use->utilisation, &use->utilisations, r->utilisation);
    add_known(&use->mhz, &use->clocks, r->clock_mhz);
    add_known(&use->watts, &use->powers, r->watts);
    use->memory = r->memory > use->memory ? r->memory : use->memory;
    if (r->throttles > 0) {
        use->throttled++;
        use->throttles |= r->throttles;
    }
    add_energy(use, r, now_ns);
    use->last_joules = r->joules;
    use->last_mhz = r->clock_mhz;
    use->last_ns = now_ns;
}

void dp_gpu_use_pause(struct dp_gpu_use *use)
{
    use->last_ns = 0;
}

double dp_gpu_use_joules(const struct dp_gpu_use *use)
{
    if (use->counted_joules > 0.0) {
        return use->counted_joules;
    }
    return use->power_joules > 0.0 ? use->power_joules : (double)NAN;
}

static double mean(double sum, uint64_t count)
{
    return count > 0 ? sum / (double)count : (double)NAN;
}

double dp_gpu_use_utilisation(const struct dp_gpu_use *use)
{
    return mean(use->utilisation, use->utilisations);
}

double dp_gpu_use_mhz(const struct dp_gpu_use *use)
{
    return mean(use->mhz, use->clocks);
}

double dp_gpu_use_watts(const struct dp_gpu_use *use)
{
    return mean(use->watts, use->powers);
}
