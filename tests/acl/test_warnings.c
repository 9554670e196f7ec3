/* Tokens of which an agent warns. */
#include <criterion/criterion.h>

#include "acl/resolve.h"
#include "acl/rules.h"
#include "acl/warnings.h"

static struct access *with(enum access_level otherwise, enum access_resource resource, enum access_level level) {
    struct access *access = access_new(otherwise);
    bool named = access_resource_named(resource);
    access_add(access, resource, named, slice_text(named ? "a/" : ""), level);
    access_seal(access);
    return access;
}

static struct access *management(void) {
    struct access *access = access_new(ACCESS_DENY);
    rules_add_management(access);
    access_seal(access);
    return access;
}

Test(warnings, a_default_token_that_may_everything_or_nothing) {
    struct access *manages = management(), *writes = with(ACCESS_DENY, ACCESS_KEY, ACCESS_WRITE);
    struct access *reads = with(ACCESS_DENY, ACCESS_ACL, ACCESS_READ),
                  *acl = with(ACCESS_DENY, ACCESS_ACL, ACCESS_WRITE);
    cr_expect(strstr(acl_warn_default(manages), "management rights"));
    cr_expect(strstr(acl_warn_default(acl), "management rights"), "who writes tokens has them all");
    cr_expect_null(acl_warn_default(writes));
    cr_expect_null(acl_warn_default(reads));
    cr_expect(strstr(acl_warn_default(NULL), "not there"));
    access_release(manages), access_release(writes), access_release(reads), access_release(acl);
}

Test(warnings, an_anonymous_token_that_may_write) {
    struct arena arena = {0};
    struct access *nothing = access_new(ACCESS_DENY);
    access_seal(nothing);
    cr_expect_null(acl_warn_anonymous(nothing, &arena));
    struct access *reads = with(ACCESS_DENY, ACCESS_KEY, ACCESS_LIST),
                  *writes = with(ACCESS_DENY, ACCESS_KEY, ACCESS_WRITE);
    cr_expect_null(acl_warn_anonymous(reads, &arena));
    cr_expect(strstr(acl_warn_anonymous(writes, &arena), "may write (key),"), "for some names is enough");
    struct access *allowed = with(ACCESS_WRITE, ACCESS_KEY, ACCESS_READ);
    const char *line = acl_warn_anonymous(allowed, &arena);
    cr_expect(strstr(line, "agent, event, key,") && strstr(line, "session)") && !strstr(line, "acl,"), "%s", line);
    access_release(nothing), access_release(reads), access_release(writes), access_release(allowed);
    arena_free(&arena);
}
