/* Regular expressions as ECMA-262 writes them (the "pattern" of JSON Schema), for patterns and texts of outsiders:
 * matching takes time in proportion to the text's length times the pattern's, whatever the pattern. The matcher follows
 * all states that the pattern may be in at once, so it never goes back. The answer depends on pattern and text alone,
 * not on a library's version or a locale.
 *
 * Characters are code points, as with ECMA's flag "u". There are . [a-z] [^a-z] \d \D \w \W \s \S \b \B ^ $ | ( ) (?: )
 * (?<name> ) * + ? {n} {n,} {n,m} (and their lazy forms, which match the same texts), \t \n \v \f \r \0 \cA \x41 \u0041
 * \u{1f600}, and a backslash before punctuation. Refused by name: syntax that would need going back or tables
 * (look-ahead and look-behind, \1, \k, \p), and syntax that other dialects understand differently (\Z, (?i), a lone
 * brace). */
#ifndef COORD_BASE_PATTERN_H
#define COORD_BASE_PATTERN_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

#define PATTERN_TEXT_MOST         1024 /* bytes */
#define PATTERN_INSTRUCTIONS_MOST 2048 /* a{1000} has 1000 */

struct pattern;

/* Lives as long as `arena`. NULL and a fault (CO_INVALID, CO_TOOLARGE; "look-ahead is not supported, at byte 3"). */
struct pattern *pattern_compile(struct arena *arena, struct slice text, struct fault *fault);
size_t pattern_weight(const struct pattern *pattern); /* its memory in bytes */

/* Does any part of `text` match? It takes a step (base/steps.h) for each state that it looks at. False, and no steps
 * are left, when the steps do not suffice. Any thread. */
bool pattern_match(const struct pattern *pattern, struct slice text, uint64_t *steps);

#endif
