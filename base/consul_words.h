/* Features of Consul (up to 1.22) that coord does not have: commands, flags, configuration keys, paths of the HTTP API.
 * A user who asks for one of these is told that coord does not have it, instead of "unknown" or a suggestion of
 * something else. docs/divergence.md lists each of them (tests/tidy/check_words.py), and none of them is in coord's own
 * tables (tests/agent/test_consul_words.c). */
#ifndef COORD_BASE_CONSUL_WORDS_H
#define COORD_BASE_CONSUL_WORDS_H

#include "base/buffer.h"

enum consul_kind {
    CONSUL_COMMAND,      /* "acl"; "operator area": a command below one that coord has */
    CONSUL_AGENT_FLAG,   /* of `consul agent`, without '-' */
    CONSUL_CLIENT_FLAG,  /* of the commands that talk to an agent */
    CONSUL_COMMAND_FLAG, /* of one command: "lock -timeout" */
    CONSUL_KEY,          /* a configuration key or a folder of them */
    CONSUL_PATH,         /* "/v1/query": it, and all below it */
};

struct consul_word {
    enum consul_kind kind;
    const char *word;
    const char *instead; /* what to do or why it is not there, without a full stop */
};

extern const struct consul_word consul_words[]; /* the last has no word */

/* NULL: it is none of these. A path is found by its beginning, a key by its folder. */
const struct consul_word *consul_word_find(enum consul_kind kind, struct slice word);

/* Appends "Consul's `login`; coord does not have it: there is no access control yet; see docs/divergence.md". */
void consul_word_print(struct buffer *out, const struct consul_word *word);

#endif
