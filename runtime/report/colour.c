#include "runtime/report/colour.h"

#include <stdlib.h>
#include <string.h>

static const double good_share = 0.9, bad_share = 0.7;

static bool allowed;

void dp_colour_allow(bool terminal)
{
    const char *objects = getenv("NO_COLOR"), *kind = getenv("TERM");

    allowed = terminal && (objects == NULL || *objects == '\0') &&
              (kind == NULL || strcmp(kind, "dumb") != 0);
}

const char *dp_colour(enum dp_colour colour)
{
    static const char *const sequences[] = {
#define X(name, sequence) sequence,
        DP_COLOURS(X)
#undef X
    };

    return allowed ? sequences[colour] : "";
}

enum dp_colour dp_colour_of_share(double share)
{
    return share >= good_share  ? DP_COLOUR_GOOD
           : share >= bad_share ? DP_COLOUR_NOTICE
           : share >= 0.0       ? DP_COLOUR_BAD
                                : DP_COLOUR_PLAIN;
}
