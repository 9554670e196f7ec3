/* Trees of phasers: how a party that comes, arrives or goes changes the counts of the ancestors, and the advance.
 *
 * A child is counted in its parent's `registered` while its own is not 0, and in `arrived` while it is complete. So the
 * parent's counts follow from the child's alone in every entry, and a change below ends at the first ancestor for which
 * both stay the same. */
#include "kv/phaser/phaser_internal.h"

int phaser_chain_load(struct machine_tx *tx, struct slice name, struct phaser_chain *chain) {
    *chain = (struct phaser_chain){0};
    int rv = CO_OK;
    for (; name.size; name = slice_text(chain->at[chain->count - 1]->parent)) {
        if (chain->count == PHASER_DEPTH_MAX) return CO_CORRUPT;
        rv = phaser_get(tx->store, name, tx->arena, &chain->at[chain->count]);
        if (rv != CO_OK) return rv == CO_NOTFOUND && chain->count ? CO_CORRUPT : rv;
        chain->count++;
    }
    if (!chain->count) return CO_NOTFOUND;
    CHECK(chain->count <= PHASER_DEPTH_MAX);
    chain->signalled = chain->at[chain->count - 1]->registered > 0;
    return CO_OK;
}

static bool add(uint32_t *number, int change) {
    if (change < 0 && *number < (uint32_t)-change) return false;
    *number += (uint32_t)change;
    return true;
}

int phaser_chain_count(struct phaser_chain *chain, int registered, int arrived) {
    for (unsigned i = 0; i < chain->count && (registered || arrived); i++) {
        Pb__Phaser *phaser = chain->at[i];
        bool signalled = phaser->registered > 0, was_complete = phaser_is_complete(phaser);
        if (!add(&phaser->registered, registered) || !add(&phaser->arrived, arrived) ||
            phaser->arrived > phaser->registered)
            return CO_CORRUPT;
        chain->changed[i] = true;
        registered = (phaser->registered > 0) - signalled;
        arrived = phaser_is_complete(phaser) - was_complete;
        CHECK(registered >= -1 && registered <= 1 && arrived >= -1 && arrived <= 1); /* one party of the parent */
    }
    return CO_OK;
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

static void end(struct machine_tx *tx, const Pb__Phaser *phaser) {
    (void)store_del(tx->store, PHASER_TABLE, slice_text(phaser->name));
    machine_changed(tx, SPACE_PHASER, slice_text(phaser->name), true);
}

/* Removes empty phasers, from the first one upwards. *left: how many have ended. */
static int end_empty(struct machine_tx *tx, struct phaser_chain *chain, unsigned *left) {
    unsigned i = 0;
    for (; i < chain->count && !chain->at[i]->members && !chain->at[i]->children; i++) {
        end(tx, chain->at[i]);
        if (i + 1 == chain->count) continue;
        Pb__Phaser *root = chain->at[chain->count - 1];
        phaser_child_del(tx, chain->at[i + 1], chain->at[i]);
        if (!add(&chain->at[i + 1]->children, -1) || !add(&root->descendants, -1)) return CO_CORRUPT;
        chain->changed[i + 1] = chain->changed[chain->count - 1] = true;
    }
    *left = i;
    return CO_OK;
}

/* -- the advance -------------------------------------------------------------------------------------------------- */

static int advance_one(struct machine_tx *tx, const char *name) {
    Pb__Phaser *phaser;
    int rv = phaser_get(tx->store, slice_text(name), tx->arena, &phaser);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    phaser->phase++;
    phaser->arrived = 0;
    phaser->phase_index = tx->index;
    phaser_put(tx, phaser);
    machine_touch(tx, SPACE_PHASER_PHASE, slice_text(name));
    return CO_OK;
}

/* Advances the root, and all phasers below it. */
static int advance(struct machine_tx *tx, const Pb__Phaser *root) {
    size_t most = 1 + (size_t)root->descendants, count = 1;
    if (root->descendants > PHASER_TREE_MAX) return CO_CORRUPT;
    const char **names = arena_alloc(tx->arena, most * sizeof *names);
    int rv = CO_OK;
    names[0] = root->name;
    for (size_t i = 0; i < count && rv == CO_OK; i++) {
        size_t more = 0;
        rv = advance_one(tx, names[i]);
        if (rv == CO_OK)
            rv = phaser_children(tx->store, slice_text(names[i]), tx->arena, names + count, most - count, &more);
        count += more;
        CHECK(count <= most);
    }
    return rv;
}

int phaser_chain_settle(struct machine_tx *tx, struct phaser_chain *chain, bool *advanced) {
    unsigned first = 0;
    *advanced = false;
    int rv = end_empty(tx, chain, &first);
    if (rv != CO_OK || first == chain->count) return rv;
    CHECK(first < chain->count);
    for (unsigned i = first; i < chain->count; i++)
        if (chain->changed[i]) phaser_put(tx, chain->at[i]);
    const Pb__Phaser *root = chain->at[chain->count - 1];
    *advanced = chain->signalled && root->arrived == root->registered;
    return *advanced ? advance(tx, root) : CO_OK;
}
