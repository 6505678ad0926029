#include "base/statistics.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void dp_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
}

double dp_median(const double *sorted, size_t count)
{
    return (sorted[count / 2] + sorted[(count - 1) / 2]) / 2.0;
}

double dp_quantile(const double *sorted, size_t count, double part)
{
    const double rank = ceil(part * (double)count);
    const size_t i = rank < 1.0 ? 0 : (size_t)rank - 1;

    return sorted[i < count ? i : count - 1];
}
