#include "acl/warnings.h"

const char *acl_warn_default(const struct access *access) {
    if (!access)
        return "the default token (acl.tokens.default) is not there: requests without a token, and DNS, are refused";
    if (access_allows(access, ACCESS_ACL, slice_make("", 0), ACCESS_WRITE))
        return "the default token (acl.tokens.default) has management rights: requests without a token may do "
               "everything";
    return NULL;
}

const char *acl_warn_anonymous(const struct access *access, struct arena *arena) {
    const char *list = "";
    for (enum access_resource resource = 0; resource < ACCESS_RESOURCES; resource++)
        if (access_allows_some(access, resource, ACCESS_WRITE))
            list = arena_printf(arena, "%s%s%s", list, *list ? ", " : "", access_resource_name(resource));
    if (!*list) return NULL;
    return arena_printf(arena, "the anonymous token may write (%s), by its policies or by acl.default_policy", list);
}
