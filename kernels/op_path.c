#include "kernels/op_path.h"

#include <stdio.h>
#include <string.h>

void dp_op_path_note(const struct dp_stream *s, const char *library, const char *code)
{
    char note[DP_OP_PATH_BYTES];
    size_t used;

    if (s->path == NULL) {
        return;
    }
    (void)snprintf(note, sizeof(note), "%s%s%s", library, code[0] == '\0' ? "" : " ", code);
    used = strlen(s->path);
    if (strstr(s->path, note) == NULL) {
        (void)snprintf(s->path + used, DP_OP_PATH_BYTES - used, "%s%s", used > 0 ? "; " : "", note);
    }
}

void dp_op_path_spare(const struct dp_stream *s, double flops)
{
    if (s->spared != NULL) {
        *s->spared += flops;
    }
}
