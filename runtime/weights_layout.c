/* weights_layout.c - our layout of a tensor and PyTorch's, element by element. */
#include <string.h>

#include "runtime/weights.h"

/* Walks PyTorch's order [outer, channels, spatial] and follows the place in ours, [outer, spatial,
 * channels], without a division for each element. */
struct walk {
    size_t spatial, channels; /* of the tensor */
    size_t row;               /* where this `outer` begins */
    size_t s, c;
};

static struct walk walk_from(const struct dp_tensor *tensor, size_t begin)
{
    const size_t inner = tensor->spatial * tensor->channels;

    return (struct walk){.spatial = tensor->spatial,
                         .channels = tensor->channels,
                         .row = begin / inner * inner,
                         .s = begin % tensor->spatial,
                         .c = begin % inner / tensor->spatial};
}

static size_t walk_place(const struct walk *walk)
{
    return walk->row + walk->s * walk->channels + walk->c;
}

static void walk_on(struct walk *walk)
{
    if (++walk->s < walk->spatial) {
        return;
    }
    walk->s = 0;
    if (++walk->c == walk->channels) {
        walk->c = 0;
        walk->row += walk->spatial * walk->channels;
    }
}

void dp_tensor_export(const struct dp_tensor *tensor, const float *ours, size_t begin, size_t count,
                      float *theirs)
{
    struct walk walk;

    if (tensor->spatial <= 1) {
        memcpy(theirs, ours + begin, count * sizeof(float));
        return;
    }
    walk = walk_from(tensor, begin);
    for (size_t i = 0; i < count; i++, walk_on(&walk)) {
        theirs[i] = ours[walk_place(&walk)];
    }
}

void dp_tensor_import(const struct dp_tensor *tensor, float *ours, size_t begin, size_t count,
                      const float *theirs)
{
    struct walk walk;

    if (tensor->spatial <= 1) {
        memcpy(ours + begin, theirs, count * sizeof(float));
        return;
    }
    walk = walk_from(tensor, begin);
    for (size_t i = 0; i < count; i++, walk_on(&walk)) {
        ours[walk_place(&walk)] = theirs[i];
    }
}
