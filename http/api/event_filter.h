/* Filters of events: POSIX extended regular expressions (IEEE 1003.1, chapter 9) that cost little, whoever wrote
 * them. The C library writes repetitions out, copy by copy, and tries whatever a back-reference could mean: so there
 * are no back-references, and what is written out is at most EVENT_FILTER_WRITTEN places. Pure; any thread. */
#ifndef COORD_HTTP_API_EVENT_FILTER_H
#define COORD_HTTP_API_EVENT_FILTER_H

#include <regex.h>
#include <stdbool.h>

#include "base/error.h"

#define EVENT_FILTER_WRITTEN 128
#define EVENT_FILTER_TEXT    256 /* bytes of a name or tag; a longer one is not taken */

/* NULL: it may be compiled; or what is wrong with it. Says nothing of its syntax. */
const char *event_filter_costly(const char *filter);
/* CO_OK: `regex` is compiled, regfree() is the caller's. CO_INVALID: `filter` is none, or too long, or too costly. */
int event_filter_compile(const char *filter, regex_t *regex, struct fault *fault);
bool event_filter_takes(const regex_t *regex, const char *text);

#endif
