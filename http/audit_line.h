/* A line of the audit log, and ids of requests. Pure. Lines tell no secret: values of ?token=, paths that have secrets in
 * them, and everything that holds the request's own secret are written as "<hidden>". */
#ifndef COORD_HTTP_AUDIT_LINE_H
#define COORD_HTTP_AUDIT_LINE_H

#include "base/buffer.h"
#include "base/random.h"

#define AUDIT_ID_MAX     64
#define AUDIT_TARGET_MAX 2048 /* bytes of a target that are written */

struct audit_line {
    uint64_t unix_ms;
    const char *kind; /* "write", "read", "login", "logout", "denial" */
    const char *id;
    const char *accessor, *token; /* of the token: its accessor ID and description; "": not known */
    const char *slot;             /* where the token came from; "": there is no access control */
    const char *certificate;      /* the name in the client's; "": it showed none */
    const char *address;          /* "10.0.0.1:4711", "[::1]:4711", "unix" */
    const char *method;
    struct slice target; /* as received */
    struct slice secret; /* of the request's token */
    int status;          /* 0: the client was gone before its answer */
    const char *denied;  /* why; NULL: it was not */
    const char *subject; /* what it made or changed, where the path does not say; NULL: nothing */
    uint64_t index;      /* of the write; 0: none */
};
/* Appends the line: JSON, and a line feed. */
void audit_line_write(struct buffer *out, const struct audit_line *line);
/* At most so many bytes, as far as it is known before the request is carried out. */
size_t audit_line_estimate(struct slice target);

/* 1 to 64 letters, digits, '.', '_' and '-', and without the secret in it. */
bool audit_id_valid(struct slice id, struct slice secret);
void audit_id_draw(struct rng *rng, char id[AUDIT_ID_MAX + 1]);

#endif
