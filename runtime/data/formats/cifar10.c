#include "runtime/data/formats/cifar10.h"

#include <stdbool.h>
#include <string.h>

#include "base/text.h"

void dp_cifar10_interleave(const uint8_t *planes, uint8_t *image)
{
    const uint8_t *red = planes, *green = red + DP_CIFAR10_PIXELS;
    const uint8_t *blue = green + DP_CIFAR10_PIXELS;

    for (size_t i = 0; i < DP_CIFAR10_PIXELS; i++) {
        image[3 * i] = red[i];
        image[3 * i + 1] = green[i];
        image[3 * i + 2] = blue[i];
    }
}

/* Whether a name can be printed as it is. */
static bool is_plain(const char *name)
{
    char clean[4 * DP_CIFAR10_NAME];

    (void)dp_text_clean(name, clean, sizeof(clean));
    return strcmp(name, clean) == 0;
}

dp_status dp_cifar10_names(const char *text, size_t bytes,
                           char names[DP_CIFAR10_CLASSES][DP_CIFAR10_NAME],
                           struct dp_problem *problem)
{
    const char *at = text, *end = text + bytes;
    int count = 0;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop != NULL ? stop : end) - at);
        const char *line = at;

        at += length + (stop != NULL ? 1 : 0);
        length -= length > 0 && line[length - 1] == '\r' ? 1 : 0;
        if (length == 0) {
            continue;
        }
        if (count == DP_CIFAR10_CLASSES || length >= DP_CIFAR10_NAME) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "%s: it is not CIFAR-10's, take it out, or fetch it again",
                                     length >= DP_CIFAR10_NAME ? "has a line that is no name"
                                                               : "names more than 10 classes");
        }
        memcpy(names[count], line, length);
        names[count][length] = '\0';
        if (strlen(names[count]) != length || !is_plain(names[count])) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "name %d has control characters, or is no UTF-8: rename it",
                                     count + 1);
        }
        count++;
    }
    return count == DP_CIFAR10_CLASSES
               ? DP_OK
               : dp_problem_refuse(problem, DP_ERR_DATA,
                                   "names %d class%s, not 10: take it out, or fetch it again",
                                   count, count == 1 ? "" : "es");
}
