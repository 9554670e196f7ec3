/* Selectors of binding rules: a part of the language of Consul's filters (go-bexpr), on what a login tells of its owner.
 *
 *     value.NAME == "x"      value.NAME != "x"        "x" in value.NAME (a part of the text)    value.NAME matches "regex"
 *     "x" in list.NAME       list.NAME contains "x"   list.NAME is empty
 *     not E    E and E    E or E    (E)               also: not in, not contains, not matches, is not empty
 *
 * Texts stand in "...", with Go's escapes \" \\ \n \t, in `...`, or are words of letters, digits, _ and dots. A regular expression
 * is POSIX's (extended). Pure. */
#ifndef COORD_ACL_SELECTOR_H
#define COORD_ACL_SELECTOR_H

#include "acl/jwt.h"

#define SELECTOR_DEPTH_MOST 32

/* The names that an auth method makes of claims. */
struct selector_names {
    const struct jwt_mapping *values, *lists;
    size_t value_count, list_count;
};
/* Does the login fit? An empty selector always does. A name without a claim is "", or an empty list. CO_INVALID: a line with the
 * place. `variables` NULL: checks the selector alone. */
int selector_fits(struct slice text, const struct selector_names *names, const struct jwt_variables *variables,
                  bool *fits, struct fault *fault);

#endif
