/* Tokens that give away too much, or nothing at all: for the log at an agent's start, and for `coord acl status`. */
#ifndef COORD_ACL_WARNINGS_H
#define COORD_ACL_WARNINGS_H

#include "registry/access.h"

/* Each returns a line, NULL: all is well. */

/* Of acl.tokens.default, where an agent has one. `access` NULL: there is no such token. */
const char *acl_warn_default(const struct access *access);
/* Of the anonymous token, in the arena. */
const char *acl_warn_anonymous(const struct access *access, struct arena *arena);

#endif
