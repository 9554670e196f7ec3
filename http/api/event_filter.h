/* Filters of events: POSIX extended regular expressions (IEEE 1003.1, chapter 9), limited so that none is expensive.
 * The C library writes repetitions out, copy by copy, and tries all matches of a back-reference. So back-references are
 * refused, and the written-out form has at most EVENT_FILTER_WRITTEN places. Pure functions; any thread. */
#ifndef COORD_HTTP_API_EVENT_FILTER_H
#define COORD_HTTP_API_EVENT_FILTER_H

#include <regex.h>
#include <stdbool.h>

#include "base/error.h"

#define EVENT_FILTER_WRITTEN 128
#define EVENT_FILTER_TEXT    256 /* bytes of a name or tag; a longer one never matches */

/* NULL: the filter is cheap enough to compile; else why not. Does not check its syntax. */
const char *event_filter_costly(const char *filter);
/* CO_OK: `regex` is compiled, and the caller calls regfree(). CO_INVALID: `filter` has a mistake, is too long, or too
 * costly. */
int event_filter_compile(const char *filter, regex_t *regex, struct fault *fault);
bool event_filter_takes(const regex_t *regex, const char *text);

#endif
