/*
 * option_own.h - what reading and printing options share; for the files option*.c alone.
 */
#ifndef DP_BASE_OPTION_OWN_H
#define DP_BASE_OPTION_OWN_H

#include "base/option.h"

enum { DP_OPTION_WORD = 64 /* longest of a choice */ };

/* YAML's words for nothing; and whether the row takes them. */
bool dp_option_is_null(const char *text);
bool dp_option_may_be_null(const struct dp_option *row);

/* 1 for true, 0 for false, -1 for anything else. */
int dp_option_read_switch(const char *text);

/* Copies choice `i` of "a|b|c" into `word`; false after the last. */
bool dp_option_choice_at(const char *choices, int i, char *word, size_t size);

#endif
