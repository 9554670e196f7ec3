#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "consensus/message.h"
#include "consensus/message.pb-c.h"

static bool same(const struct raft_message *a, const struct raft_message *b) {
    bool scalars = a->type == b->type && a->from == b->from && a->to == b->to && a->term == b->term &&
                   a->last_index == b->last_index && a->last_term == b->last_term && a->commit == b->commit &&
                   a->round == b->round && a->granted == b->granted && a->transfer == b->transfer &&
                   a->full == b->full && a->recoveries_told == b->recoveries_told &&
                   memcmp(&a->recoveries, &b->recoveries, sizeof a->recoveries) == 0 && a->rejected == b->rejected &&
                   a->match == b->match && a->hint_index == b->hint_index && a->hint_term == b->hint_term &&
                   a->offset == b->offset && a->last == b->last && a->entry_count == b->entry_count &&
                   slice_equal(a->data, b->data);
    const struct raft_snapshot_meta *x = &a->snapshot, *y = &b->snapshot;
    bool snapshot = x->index == y->index && x->term == y->term && x->size == y->size &&
                    x->members_index == y->members_index && x->members.count == y->members.count;
    if (!scalars || !snapshot) return false;
    for (uint32_t i = 0; i < x->members.count; i++)
        if (x->members.member[i].id != y->members.member[i].id ||
            x->members.member[i].voter != y->members.member[i].voter ||
            strcmp(x->members.member[i].address, y->members.member[i].address) != 0)
            return false;
    for (size_t i = 0; i < a->entry_count; i++) {
        const struct raft_entry *e = &a->entries[i], *f = &b->entries[i];
        if (e->index != f->index || e->term != f->term || e->type != f->type || e->unix_ms != f->unix_ms ||
            !slice_equal(raft_entry_bytes(e), raft_entry_bytes(f)))
            return false;
    }
    return true;
}

static void round_trip(const struct raft_message *message) {
    struct buffer bytes = {0};
    struct raft_message back;
    buffer_append_text(&bytes, "it appends");
    raft_message_encode(message, &bytes);
    struct slice wire = slice_make(bytes.data + 10, bytes.size - 10);
    cr_assert_eq(raft_message_decode(wire, &back), CO_OK);
    cr_assert(same(message, &back), "type %d", (int)message->type);
    if (back.data.size)
        cr_assert(back.data.data > wire.data && back.data.data + back.data.size == wire.data + wire.size, "not copied");
    raft_message_drop(&back);
    cr_assert_null(back.entries);
    /* Bytes that are cut short, or have more behind them, are not a message. */
    if (wire.size < 400)
        for (size_t size = 0; size < wire.size; size++) {
            int rv = raft_message_decode(slice_make(wire.data, size), &back);
            bool chunk = message->type == RAFT_MSG_SNAPSHOT; /* its length is the frame's business */
            cr_assert(rv == CO_CORRUPT || chunk, "%zu of %zu", size, wire.size);
            raft_message_drop(&back);
        }
    buffer_free(&bytes);
}

/* Also those of leaders whose clocks differ, and none. */
static uint64_t random_time(struct rng *rng) {
    static const uint64_t times[] = {0, 1, 1795757631719, RAFT_UNIX_MS_MAX};
    uint64_t time = times[rng_below(rng, 4)];
    return time > 1000 && time < RAFT_UNIX_MS_MAX ? time + rng_below(rng, 2000) - 1000 : time;
}

static struct raft_message random_message(struct rng *rng) {
    struct raft_message m = {.type = (enum raft_message_type)rng_between(rng, RAFT_MSG_PREVOTE, RAFT_MSG_TIMEOUT_NOW)};
    unsigned shift = (unsigned)rng_below(rng, 62) + 1;
    m.from = (rng_next(rng) >> shift) + 1;
    m.to = rng_next(rng) >> shift;
    m.term = (rng_next(rng) >> shift) + 10;
    m.last_index = rng_next(rng) >> shift;
    m.last_term = rng_below(rng, 10);
    m.commit = rng_next(rng) >> shift;
    m.round = rng_next(rng) >> shift;
    m.granted = rng_below(rng, 2);
    m.transfer = rng_below(rng, 2);
    m.full = rng_below(rng, 2);
    m.recoveries.count = (uint32_t)rng_below(rng, RAFT_RECOVERIES_MAX + 1);
    for (uint32_t i = 0; i < m.recoveries.count; i++)
        m.recoveries.item[i] =
            (struct raft_recovery){10 * (i + 1) + rng_below(rng, 10), 1 + rng_below(rng, 9), 0, rng_next(rng)};
    m.recoveries_told = rng_below(rng, 2);
    m.rejected = rng_below(rng, 2);
    m.match = rng_next(rng) >> shift;
    m.hint_index = rng_next(rng) >> shift;
    m.hint_term = rng_next(rng) >> shift;
    m.last = rng_below(rng, 2);
    return m;
}

Test(message, whatever_is_sent_arrives) {
    struct rng rng;
    rng_seed(&rng, 1);
    char chunk[3000];
    memset(chunk, 'c', sizeof chunk);
    for (int i = 0; i < 3000; i++) {
        struct raft_message m = random_message(&rng);
        struct raft_entry entries[20];
        if (m.type == RAFT_MSG_APPEND) {
            m.entries = entries;
            m.entry_count = rng_below(&rng, 20);
            for (size_t k = 0; k < m.entry_count; k++) {
                size_t size = rng_below(&rng, 3) ? rng_below(&rng, 300) : 0;
                entries[k] = (struct raft_entry){.index = m.last_index + 1 + k,
                                                 .term = m.last_term + (m.last_term == 0),
                                                 .type = (uint8_t)rng_below(&rng, 3),
                                                 .data = size ? raft_data_new(NULL, size) : NULL,
                                                 .unix_ms = random_time(&rng)};
                if (size) memset(entries[k].data->bytes, (int)k, size);
            }
        } else if (m.type == RAFT_MSG_SNAPSHOT || m.type == RAFT_MSG_SNAPSHOT_REPLY) {
            m.snapshot.index = rng_next(&rng) | 1;
            m.snapshot.term = rng_next(&rng);
            m.snapshot.size = rng_next(&rng);
            m.snapshot.members_index = rng_next(&rng);
            m.snapshot.members.count = (uint32_t)rng_below(&rng, RAFT_MEMBERS_MAX + 1);
            for (uint32_t k = 0; k < m.snapshot.members.count; k++) {
                m.snapshot.members.member[k].id = k + 1;
                m.snapshot.members.member[k].voter = k % 2;
                strcpy(m.snapshot.members.member[k].address, "10.0.0.1:8300");
            }
            m.offset = rng_next(&rng) >> 1;
            if (m.type == RAFT_MSG_SNAPSHOT) m.data = slice_make(chunk, rng_below(&rng, sizeof chunk));
        }
        round_trip(&m);
        for (size_t k = 0; k < m.entry_count; k++) raft_data_unref(entries[k].data);
    }
}

Test(message, a_heartbeat_is_small) {
    struct raft_message m = {.type = RAFT_MSG_APPEND,
                             .from = 1,
                             .to = 2,
                             .term = 3,
                             .last_index = 100000,
                             .last_term = 3,
                             .commit = 100000,
                             .round = 5000};
    struct buffer bytes = {0};
    raft_message_encode(&m, &bytes);
    cr_assert(bytes.size <= 32, "%zu", bytes.size);
    buffer_free(&bytes);
}

/* -- what peers may send -- */

static Pb__RaftMessage append_of_two(void) {
    static uint64_t terms[2];
    static uint32_t types[2], sizes[2];
    static int64_t times[2];
    Pb__RaftMessage head = PB__RAFT_MESSAGE__INIT;
    head.type = RAFT_MSG_APPEND;
    head.from = 1;
    head.term = 5;
    head.last_index = 7;
    head.last_term = 3;
    terms[0] = 4, terms[1] = 5;
    types[0] = RAFT_ENTRY_EMPTY, types[1] = RAFT_ENTRY_COMMAND;
    sizes[0] = 0, sizes[1] = 6;
    times[0] = 0, times[1] = 1000;
    head.n_entry_terms = head.n_entry_types = head.n_entry_sizes = head.n_entry_times = 2;
    head.entry_times = times;
    head.entry_terms = terms;
    head.entry_types = types;
    head.entry_sizes = sizes;
    return head;
}

static int decode_head(const Pb__RaftMessage *head, const char *payload) {
    char bytes[1024];
    size_t size = pb__raft_message__pack(head, (uint8_t *)bytes + 4), length = strlen(payload);
    put_le32(bytes, (uint32_t)size);
    memcpy(bytes + 4 + size, payload, length);
    struct raft_message m;
    int rv = raft_message_decode(slice_make(bytes, 4 + size + length), &m);
    if (rv != CO_OK) cr_assert(m.entries == NULL && m.entry_count == 0);
    raft_message_drop(&m);
    return rv;
}

#define REFUSED(change, payload)                                              \
    do {                                                                      \
        Pb__RaftMessage head = append_of_two();                               \
        change;                                                               \
        cr_expect_eq(decode_head(&head, payload), CO_CORRUPT, "%s", #change); \
    } while (0)

Test(message, what_cannot_be_is_refused) {
    Pb__RaftMessage good = append_of_two();
    cr_assert_eq(decode_head(&good, "sixsix"), CO_OK);
    REFUSED(head.type = 0, "sixsix");
    REFUSED(head.type = RAFT_MSG_TIMEOUT_NOW + 1, "sixsix");
    REFUSED(head.type = RAFT_MSG_VOTE, "sixsix");
    REFUSED(head.from = 0, "sixsix");
    REFUSED(head.last_index = UINT64_MAX - 1, "sixsix");
    REFUSED(head.last_term = 5, "sixsix");
    REFUSED(head.term = 4, "sixsix");
    REFUSED(head.entry_terms[0] = 0, "sixsix");
    REFUSED(head.entry_terms[1] = 3, "sixsix");
    REFUSED(head.entry_types[0] = 3, "sixsix");
    REFUSED(head.entry_sizes[1] = 7, "sixsix");
    REFUSED(head.entry_sizes[0] = UINT32_MAX, "sixsix");
    REFUSED(head.n_entry_types = 1, "sixsix");
    REFUSED(head.n_entry_sizes = 1, "sixsix");
    REFUSED(head.n_entry_times = 1, "sixsix");
    REFUSED(head.entry_times[1] = -1, "sixsix");
    REFUSED(head.entry_times[0] = 281474976710656, "sixsix");
    REFUSED(head.entry_times[0] = INT64_MIN, "sixsix");
    REFUSED(head.n_entry_terms = 0, "sixsix");
    REFUSED((void)0, "sixsi");
    REFUSED((void)0, "sixsixs");
    Pb__RaftMessage vote = PB__RAFT_MESSAGE__INIT;
    vote.type = RAFT_MSG_VOTE;
    vote.from = 1;
    cr_assert_eq(decode_head(&vote, ""), CO_OK);
    cr_assert_eq(decode_head(&vote, "x"), CO_CORRUPT, "bytes that belong to nothing");
    vote.type = RAFT_MSG_SNAPSHOT;
    cr_assert_eq(decode_head(&vote, "x"), CO_CORRUPT, "a snapshot has an index");
    vote.snapshot_index = 1;
    cr_assert_eq(decode_head(&vote, "x"), CO_OK);
    vote.offset = UINT64_MAX;
    cr_assert_eq(decode_head(&vote, "x"), CO_CORRUPT);
}

Test(message, any_bytes_are_survived) {
    struct rng rng;
    rng_seed(&rng, 2);
    Pb__RaftMessage head = append_of_two();
    for (int round = 0; round < 50000; round++) {
        char bytes[256];
        size_t size = pb__raft_message__pack(&head, (uint8_t *)bytes + 4);
        put_le32(bytes, (uint32_t)size);
        memcpy(bytes + 4 + size, "sixsix", 6);
        size += 10;
        for (uint64_t flips = rng_below(&rng, 4); flips > 0; flips--)
            bytes[rng_below(&rng, size)] = (char)rng_next(&rng);
        struct raft_message m;
        int rv = raft_message_decode(slice_make(bytes, rng_below(&rng, size + 1)), &m);
        cr_assert(rv == CO_OK || rv == CO_CORRUPT);
        raft_message_drop(&m);
    }
}
