#include "runtime/control/stop.h"

#include <assert.h>
#include <stddef.h>

#include "base/trace.h"

static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal handlers need atomics without locks");

const char *dp_stop_text(enum dp_stop_cause cause)
{
    static const char *const texts[] = {
#define X(name, text) text,
        DP_STOP_CAUSES(X)
#undef X
    };

    return (unsigned)cause < DP_STOP_CAUSE_COUNT ? texts[cause] : "an unknown cause";
}

void dp_stop_request(struct dp_stop *stop, enum dp_stop_cause cause)
{
    int none = DP_STOP_NONE;

    (void)atomic_compare_exchange_strong(&stop->cause, &none, (int)cause);
}

void dp_stop_request_save(struct dp_stop *stop)
{
    atomic_store(&stop->save, 1);
}

void dp_stop_set_deadline(struct dp_stop *stop, double allowed_s, double age_s)
{
    const double left_s = allowed_s - age_s;

    stop->deadline_ns = dp_now_ns() + (left_s > 0.0 ? (uint64_t)(left_s * 1e9) : 0);
}

enum dp_stop_cause dp_stop_asked(const struct dp_stop *stop)
{
    enum dp_stop_cause cause;

    if (stop == NULL) {
        return DP_STOP_NONE;
    }
    cause = (enum dp_stop_cause)atomic_load(&stop->cause);
    if (cause == DP_STOP_NONE && stop->deadline_ns != 0 && dp_now_ns() >= stop->deadline_ns) {
        return DP_STOP_TIME;
    }
    return cause;
}

bool dp_stop_save_asked(const struct dp_stop *stop)
{
    return stop != NULL && atomic_load(&stop->save) != 0;
}

void dp_stop_saving(struct dp_stop *stop)
{
    if (stop != NULL) {
        atomic_store(&stop->save, 0);
    }
}
