/* Comparisons of a transaction with the state. A missing key or record has no value, indexes of 0, and neither session
 * nor lease. */
#include "base/message.h"
#include "kv/election/election.h"
#include "kv/lock/lock.h"
#include "kv/txn/txn_internal.h"

int txn_holds(struct txn_run *run, Pb__TxnThing thing, const char *name, uint64_t token) {
    bool lock = thing == PB__TXN_THING__TXN_LOCK;
    return queue_holds(run->store, lock ? &lock_family : &election_family, slice_text(name), token, run->arena);
}

/* The compared thing: a key or a record of the catalog. */
struct subject {
    bool exists, has_value;
    struct slice value, session, lease;
    uint64_t create_index, modify_index, lock_index;
};

static int subject_of(struct txn_run *run, const Pb__TxnCompare *compare, struct subject *subject) {
    *subject = (struct subject){.session = {"", 0}, .lease = {"", 0}};
    if (compare->thing == PB__TXN_THING__TXN_KEY) {
        const Pb__KvEntry *entry;
        int rv = txn_entry(run, compare->key, &entry);
        if (rv != CO_OK || !entry) return rv;
        *subject = (struct subject){.exists = true,
                                    .has_value = true,
                                    .value = message_slice(entry->value),
                                    .session = slice_text(entry->session),
                                    .lease = slice_text(entry->lease),
                                    .create_index = entry->create_index,
                                    .modify_index = entry->modify_index,
                                    .lock_index = entry->lock_index};
        return CO_OK;
    }
    struct txn_record record;
    int rv = txn_record(run, compare->thing, compare->node, compare->id, &record);
    subject->exists = rv == CO_OK && record.exists;
    subject->create_index = record.create_index, subject->modify_index = record.modify_index;
    return rv;
}

static bool numbers(uint64_t now, Pb__TxnRelation relation, uint64_t number) {
    switch (relation) {
        case PB__TXN_RELATION__TXN_EQUAL: return now == number;
        case PB__TXN_RELATION__TXN_UNEQUAL: return now != number;
        case PB__TXN_RELATION__TXN_LESS: return now < number;
        case PB__TXN_RELATION__TXN_GREATER: return now > number;
        default: return false; /* of a program that knows more */
    }
}

/* `there`: the thing exists; else nothing is equal. */
static bool texts(bool there, struct slice now, Pb__TxnRelation relation, struct slice text) {
    bool equal = there && slice_equal(now, text);
    return relation == PB__TXN_RELATION__TXN_UNEQUAL ? !equal : relation == PB__TXN_RELATION__TXN_EQUAL && equal;
}

int txn_compare(struct txn_run *run, const Pb__TxnCompare *compare, bool *holds) {
    Pb__TxnRelation relation = compare->relation;
    struct slice text = message_slice(compare->text);
    bool queue = compare->thing == PB__TXN_THING__TXN_LOCK || compare->thing == PB__TXN_THING__TXN_ELECTION;
    *holds = false;
    if (queue != (compare->field == PB__TXN_FIELD__TXN_HELD))
        return CO_OK; /* of forgers: txn_may judged something else */
    if (queue) {
        int rv = queue_name_fits(slice_text(compare->id)) ? txn_holds(run, compare->thing, compare->id, compare->number)
                                                          : CO_NOTFOUND;
        *holds = rv == CO_OK;
        return rv == CO_NOTFOUND ? CO_OK : rv;
    }
    struct subject now;
    int rv = subject_of(run, compare, &now);
    if (rv != CO_OK) return rv;
    switch (compare->field) {
        case PB__TXN_FIELD__TXN_EXISTS: *holds = numbers(now.exists, relation, compare->number); break;
        case PB__TXN_FIELD__TXN_VALUE: *holds = texts(now.has_value, now.value, relation, text); break;
        case PB__TXN_FIELD__TXN_SESSION_OF: *holds = texts(true, now.session, relation, text); break;
        case PB__TXN_FIELD__TXN_LEASE_OF: *holds = texts(true, now.lease, relation, text); break;
        case PB__TXN_FIELD__TXN_CREATE_INDEX: *holds = numbers(now.create_index, relation, compare->number); break;
        case PB__TXN_FIELD__TXN_MODIFY_INDEX: *holds = numbers(now.modify_index, relation, compare->number); break;
        case PB__TXN_FIELD__TXN_LOCK_INDEX: *holds = numbers(now.lock_index, relation, compare->number); break;
        default: break; /* a newer program's comparison: it does not hold */
    }
    return CO_OK;
}
