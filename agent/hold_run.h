/* Runs a command while a lock, an election or a barrier is held. Carries out the orders of agent/hold.h, with requests
 * that never block, the signals of this process, and a supervisor for the command. */
#ifndef COORD_AGENT_HOLD_RUN_H
#define COORD_AGENT_HOLD_RUN_H

#include "agent/client.h"
#include "agent/hold.h"

/* The kind of thing that is held. Constant. */
struct hold_kind {
    const char *noun, *path;     /* "lock", "/v1/lock/" */
    const char *ask, *release;   /* the last segment: "acquire", "release" */
    const char *held, *token;    /* members of answers: "Held", "FencingToken" */
    const char *standing;        /* the "Standing" of a session that holds it; NULL: `held` tells */
    const char *exports[3];      /* environment variables that get the token; ends with NULL */
    const char *late, *not_free; /* as in hold_rules */
};

struct hold_run {
    const struct hold_kind *kind;
    struct client client;
    const char *name, *ttl;   /* the TTL as it was written */
    const char *note;         /* the body of HOLD_WAIT; NULL: none */
    struct buffer parameters; /* of HOLD_WAIT: "&mode=shared&limit=3"; or empty */
    struct hold_rules rules;  /* without `what` */
    char **argv;              /* NULL: there is no command, and it ends when the name is held */
};

/* Blocks until it is over; returns the exit code (enum hold_exit, or the command's). Prints messages for people to
 * stderr, one per line. */
int hold_run(const struct hold_run *run);

#endif
