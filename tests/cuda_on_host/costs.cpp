#include "costs.h"

#include <stdlib.h>
#include <string.h>

static bool has_word(const char *variable, const char *word)
{
    const char *at = getenv(variable);
    const size_t length = strlen(word);

    while (at != nullptr && *at != '\0') {
        const size_t here = strcspn(at, ",");
        if (here == length && strncmp(at, word, length) == 0) {
            return true;
        }
        at += here + (at[here] == ',' ? 1 : 0);
    }
    return false;
}

double cuda_on_host_cost(const char *what)
{
    return has_word("DP_HOST_SLOW", what) ? 10.0 : 1.0;
}

bool cuda_on_host_lacks(const char *what)
{
    return has_word("DP_HOST_LACKS", what);
}
