#include "models/pass/pass_clock.h"

#include "base/trace.h"

static void wait_for(struct dp_pass_clock *clock, struct dp_stream *stream)
{
    const dp_status status = stream->device->synchronize(stream);

    clock->failed = clock->failed == DP_OK ? status : clock->failed;
}

uint64_t dp_pass_clock_start(struct dp_pass_clock *clock, struct dp_stream *stream, int layer)
{
    stream->path = clock->paths[layer];
    stream->spared = &clock->spared[layer];
    wait_for(clock, stream);
    return dp_now_ns();
}

void dp_pass_clock_stop(struct dp_pass_clock *clock, struct dp_stream *stream, int layer,
                        int direction, uint64_t begin_ns)
{
    wait_for(clock, stream);
    clock->ns[layer][direction] += dp_now_ns() - begin_ns;
    stream->path = NULL;
    stream->spared = NULL;
}
