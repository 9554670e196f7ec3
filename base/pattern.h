/* Patterns of text (the part of ECMAScript's regular expressions that can be matched in one pass): characters, ., [...],
 * \d \w \s and their opposites, \b \B, ^ $, groups, |, and * + ? {m,n}, greedy or not. The time of a match is at most
 * (size of the pattern) x (length of the text), whatever the pattern. */
#ifndef COORD_BASE_PATTERN_H
#define COORD_BASE_PATTERN_H

#include "base/buffer.h"
#include "base/error.h"

struct pattern;
/* CO_INVALID with a fault that says what is wrong with it, or what it needs that there is not (look-ahead, back references).
 * CO_TOOLARGE: with its repetitions written out it has more than 4,096 steps. Both are UTF-8. */
int pattern_new(struct slice text, struct pattern **out, struct fault *fault);
void pattern_free(struct pattern *pattern); /* accepts NULL */
/* Does some part of the text fit? */
bool pattern_found(const struct pattern *pattern, struct slice text);

#endif
