/* Finds the known words that a mistyped word most likely means. The rule is the same wherever a name may be mistyped:
 * commands, flags, configuration keys, members of JSON, routes and parameters.
 *
 *     struct suggest suggest = suggest_for(word);
 *     for (each known word) suggest_try(&suggest, known);
 *     if (suggest.count) ... suggest.found[0] ...
 *
 * Letters count in any case, and '-' is '_'. The same word comes first, then words that begin with it, then words that
 * differ by few typing errors: by one at two or three letters, by at most four at many. Of equals the one that was
 * tried first wins. */
#ifndef COORD_BASE_SUGGEST_H
#define COORD_BASE_SUGGEST_H

#include "base/buffer.h"

#define SUGGEST_MOST 3

struct suggest {
    struct slice word;
    struct slice found[SUGGEST_MOST]; /* words that suggest_try got, the likeliest first; all of them equally likely */
    unsigned ranks[SUGGEST_MOST], count;
};

static inline struct suggest suggest_for(struct slice word) { return (struct suggest){.word = word}; }
/* `known` lives as long as `suggest` is read. */
void suggest_try(struct suggest *suggest, struct slice known);
/* How far `known` is from `word`: 0 is the same, UINT_MAX does not look alike; those that begin with it are nearer than
 * those that are typed wrong. */
unsigned suggest_rank(struct slice word, struct slice known);

/* Appends `"kv"`, or `"region" or "regions"`; nothing when no word was found. */
void suggest_print(struct buffer *out, const struct suggest *suggest);
/* The same without quotes, and with `before` in front of each: -limit. */
void suggest_print_bare(struct buffer *out, const struct suggest *suggest, const char *before);

#endif
