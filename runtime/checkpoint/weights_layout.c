/* weights_layout.c - our layout of a tensor and PyTorch's, element by element. */
#include <string.h>

#include "runtime/checkpoint/weights.h"

/* Whether the two layouts differ. */
static bool is_moved(const struct dp_tensor *tensor)
{
    return tensor->spatial > 1 && tensor->channels > 1;
}

/* A run of PyTorch's order [outer, channels, spatial], inside one channel: in our order, [outer,
 * spatial, channels], its elements are `channels` apart. */
struct run {
    size_t place, length;
};

static struct run run_from(const struct dp_tensor *tensor, size_t at, size_t most)
{
    const size_t spatial = tensor->spatial, channels = tensor->channels;
    const size_t inner = spatial * channels, s = at % spatial, rest = spatial - s;

    return (struct run){at / inner * inner + s * channels + at % inner / spatial,
                        rest < most ? rest : most};
}

void dp_tensor_export(const struct dp_tensor *tensor, const float *ours, size_t begin, size_t count,
                      float *theirs)
{
    if (!is_moved(tensor)) {
        memcpy(theirs, ours + begin, count * sizeof(float));
        return;
    }
    for (size_t done = 0; done < count;) {
        const struct run run = run_from(tensor, begin + done, count - done);

        for (size_t i = 0; i < run.length; i++) {
            theirs[done + i] = ours[run.place + i * tensor->channels];
        }
        done += run.length;
    }
}

void dp_tensor_import(const struct dp_tensor *tensor, float *ours, size_t begin, size_t count,
                      const float *theirs)
{
    if (!is_moved(tensor)) {
        memcpy(ours + begin, theirs, count * sizeof(float));
        return;
    }
    for (size_t done = 0; done < count;) {
        const struct run run = run_from(tensor, begin + done, count - done);

        for (size_t i = 0; i < run.length; i++) {
            ours[run.place + i * tensor->channels] = theirs[done + i];
        }
        done += run.length;
    }
}
