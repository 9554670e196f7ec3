/* Small text formats: durations, numbers, base64, percent-encoding, UTF-8, UUIDs. All strict: a text must parse as a
 * whole. */
#ifndef COORD_BASE_TEXT_H
#define COORD_BASE_TEXT_H

#include "base/buffer.h"

/* Go's time.ParseDuration: "10s", "1h30m", "1.880957841873169s", "200ms", "0", "-1s". A bare number other than "0"
 * has no unit: CO_INVALID. Overflow: CO_TOOLARGE. Result in nanoseconds. */
int duration_parse(struct slice text, int64_t *nanoseconds);
/* As Go prints it: "10s", "1m0s", "200ms", "1h0m0s", "1.5s", "0s". Appends to `out`. */
void duration_format(struct buffer *out, int64_t nanoseconds);

/* The shortest digits that read back as `value`, which is finite: "d.ddde[+-]xx". `room` is 32 at least. */
void double_shortest(double value, char *text, size_t room);

/* Whole text, decimal, no sign, no blanks. Errors: CO_INVALID, CO_TOOLARGE (above `most`). */
int u64_parse(struct slice text, uint64_t most, uint64_t *value);

/* Whole text: digits, at most one dot, a sign, an exponent; never hexadecimal, infinite or not a number. At most 63
 * bytes. CO_INVALID (also when it is beyond what a double holds). */
int decimal_parse(struct slice text, double *value);

void base64_encode(struct buffer *out, const void *data, size_t size); /* standard alphabet, padded */
int base64_decode(struct buffer *out, struct slice text);              /* strict; CO_INVALID */
int base64url_decode(struct buffer *out, struct slice text);           /* with - and _, never padded; the same */

/* Decodes %XX (and '+' to a blank when `plus`), into `out` (room for text.size bytes).
 * CO_INVALID on a bad escape or on a NUL byte, encoded or not. */
int percent_decode(struct slice text, bool plus, char *out, size_t *size);

bool utf8_valid(struct slice text);
/* Length of the character that `text` begins with; 0 when there is none or it is not UTF-8. */
size_t utf8_next(struct slice text);
/* Takes the first character from the front of `text`, which is not empty. A byte that is not UTF-8 is U+FFFD. */
uint32_t utf8_take(struct slice *text);
/* As much of `text` as `most` bytes hold, without a cut character. */
struct slice utf8_cut(struct slice text, size_t most);

#define UUID_TEXT_SIZE 36
/* Lower-case 8-4-4-4-12 text, not NUL-terminated, from 16 bytes. */
void uuid_format(const uint8_t bytes[16], char text[UUID_TEXT_SIZE]);
bool uuid_valid(struct slice text);
void uuid_parse(struct slice text, uint8_t bytes[16]); /* one that is valid */

/* Line and column of a byte of `text`, both from 1; columns are characters. */
void text_place(struct slice text, size_t at, size_t *line, size_t *column);

/* Edit distance (a swap of two neighbours counts as one), for "did you mean". At most 64 characters of each are
 * looked at. */
unsigned edit_distance(struct slice a, struct slice b);

#endif
