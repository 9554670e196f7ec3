/* Times as text: RFC 3339, as ISO 8601 has it. */
#ifndef COORD_BASE_TIMESTAMP_H
#define COORD_BASE_TIMESTAMP_H

#include "base/buffer.h"

#define TIMESTAMP_MOST_MS 253402300799999u /* the last millisecond of the year 9999 */
#define TIMESTAMP_ROOM    32

/* "2026-11-26T10:00:00.250Z", always with milliseconds, ended with a NUL. A later time is shown as TIMESTAMP_MOST_MS. */
void timestamp_format(uint64_t unix_ms, char text[TIMESTAMP_ROOM]);
/* Whole text: "2026-11-26T10:00:00Z", also with a fraction (cut off to milliseconds), with "+01:00" or "-01:00" instead
 * of the Z, and with small letters. CO_INVALID: anything else, a day that is not in the calendar, and a time before
 * 1970. A leap second counts as the one after it. */
int timestamp_parse(struct slice text, uint64_t *unix_ms);

#endif
