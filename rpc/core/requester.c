#include "rpc/api/requester.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"
#include "rpc/api/access_control.h"

static uint64_t seed(void) {
    static _Atomic uint64_t chosen;
    uint64_t none = 0;
    if (!atomic_load_explicit(&chosen, memory_order_relaxed))
        atomic_compare_exchange_strong(&chosen, &none, random_u64() | 1);
    return atomic_load_explicit(&chosen, memory_order_relaxed);
}

/* A token counts as the same token from whatever slot it comes; a node is another thing than a token of its name. */
static unsigned kind(enum requester_slot slot) { return slot == REQUESTER_NODE ? 1 : slot == REQUESTER_REGION ? 2 : 0; }

uint64_t requester_hash(enum requester_slot slot, struct slice text) {
    return hash64_seed(text.data, text.size, seed() + kind(slot));
}

struct requester *requester_new(enum requester_slot slot, struct slice text) {
    CHECK(text.size <= REQUESTER_TOKEN_MOST);
    struct requester *requester = mem_alloc(sizeof *requester + text.size + 1);
    atomic_init(&requester->references, 1);
    requester->slot = slot, requester->size = text.size, requester->hash = requester_hash(slot, text);
    if (text.size) memcpy(requester->text, text.data, text.size);
    requester->text[text.size] = '\0';
    return requester;
}

struct requester *requester_keep(const struct requester *requester) {
    struct requester *kept = (struct requester *)(uintptr_t)requester;
    if (kept) atomic_fetch_add_explicit(&kept->references, 1, memory_order_relaxed);
    return kept;
}

void requester_release(const struct requester *requester) {
    struct requester *released = (struct requester *)(uintptr_t)requester;
    if (!released || atomic_fetch_sub_explicit(&released->references, 1, memory_order_acq_rel) != 1) return;
    explicit_bzero(released->text, released->size);
    free(released);
}

bool requester_is(const struct requester *requester, enum requester_slot slot, struct slice text) {
    return kind(requester->slot) == kind(slot) && requester->size == text.size &&
           memcmp(requester->text, text.data, text.size) == 0;
}

const char *requester_token(const struct requester *requester) {
    if (!requester) return "";
    return kind(requester->slot) ? REQUESTER_ANONYMOUS_SECRET : requester->text;
}

/* -- texts --------------------------------------------------------------------------------------------------------- */
void rpc_denial_print(const struct requester *requester, const struct access *access,
                      const struct access_missing *missing, struct buffer *out) {
    static const char *const slots[] = {[REQUESTER_REQUEST] = ", of the request,",
                                        [REQUESTER_DEFAULT] = ", the agent's default token,",
                                        [REQUESTER_NODE] = ", by its certificate,",
                                        [REQUESTER_REGION] = ", by its certificate,"};
    const char *accessor = access_accessor(access), *description = access_description(access);
    buffer_append_text(out, "Permission denied: ");
    if (requester->slot == REQUESTER_ANONYMOUS) {
        buffer_append_text(out, "the request has no token, and the anonymous one");
    } else {
        buffer_printf(out, "%s%s", requester->slot >= REQUESTER_NODE ? "" : "token ", accessor);
        if (description[0]) buffer_printf(out, " (%s)", description);
        buffer_append_text(out, slots[requester->slot]);
    }
    buffer_append_text(out, " lacks ");
    access_missing_print(missing, out);
}
