#include "launch/bench/stats.h"

#include <float.h>
#include <math.h>

#include "base/statistics.h"

struct dp_stats_range dp_stats_median_range(const double *sorted, size_t count)
{
    const double n = (double)count, rank = round((n - 1.96 * sqrt(n)) / 2.0);
    const size_t low = rank < 1.0 ? 0 : (size_t)rank - 1;

    if (count < DP_STATS_FEWEST) {
        return (struct dp_stats_range){(double)NAN, (double)NAN};
    }
    return (struct dp_stats_range){sorted[low], sorted[count - 1 - low]};
}

void dp_stats_differences(const double *less, const double *more, size_t count, double *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = more[i] - less[i];
    }
    dp_sort(out, count);
}

double dp_stats_algbw(double bytes, double us)
{
    return us > 0.0 ? bytes / us / 1e3 : 0.0;
}

double dp_stats_busbw(double bytes, double us, int ranks)
{
    return dp_stats_algbw(bytes, us) * 2.0 * (ranks - 1) / ranks;
}

double dp_stats_ulps(float found, double exact, double magnitude)
{
    int exponent;

    (void)frexp(magnitude > (double)FLT_MIN ? magnitude : (double)FLT_MIN, &exponent);
    return fabs((double)found - exact) / ldexp(1.0, exponent - FLT_MANT_DIG);
}

double dp_stats_relative(double error2, double exact2)
{
    return error2 > 0.0 ? sqrt(error2 / exact2) : error2;
}
