/*
 * colour.h - colour for people at a terminal; elsewhere there is none.
 */
#ifndef DP_RUNTIME_REPORT_COLOUR_H
#define DP_RUNTIME_REPORT_COLOUR_H

#include <stdbool.h>

/* name, sequence (ECMA-48: SGR). */
#define DP_COLOURS(X)     \
    X(PLAIN, "\033[0m")   \
    X(BOLD, "\033[1m")    \
    X(GOOD, "\033[32m")   \
    X(NOTICE, "\033[33m") \
    X(BAD, "\033[31m")

enum dp_colour {
#define X(name, sequence) DP_COLOUR_##name,
    DP_COLOURS(X)
#undef X
};

/* From now on there are colours, if what is printed goes to a terminal, and the user does not
 * object: NO_COLOR is set to something (no-color.org), or TERM says that the terminal has none. Off
 * at first. */
void dp_colour_allow(bool terminal);

/* What begins a colour; "" where there are none. DP_COLOUR_PLAIN ends it. */
const char *dp_colour(enum dp_colour colour);

/* The colour of a share of 1 that is to be high. */
enum dp_colour dp_colour_of_share(double share);

#endif
