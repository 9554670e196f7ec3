#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "consensus/entry.h"

Test(entry, data_is_counted) {
    struct raft_data *data = raft_data_new("abc", 3);
    cr_assert_eq(data->size, 3);
    cr_assert_eq(memcmp(data->bytes, "abc", 3), 0);
    cr_assert_eq(raft_data_ref(data), data);
    cr_assert_eq(atomic_load(&data->refs), 2);
    raft_data_unref(data);
    cr_assert_eq(atomic_load(&data->refs), 1);
    raft_data_unref(data);
    cr_assert_null(raft_data_ref(NULL));
    raft_data_unref(NULL);
}

Test(entry, data_may_be_filled_later) {
    struct raft_data *data = raft_data_new(NULL, 100);
    memset(data->bytes, 'x', 100);
    struct raft_entry entry = {1, 1, RAFT_ENTRY_COMMAND, data, 0};
    cr_assert_eq(raft_entry_bytes(&entry).size, 100);
    raft_data_unref(data);
    entry.data = NULL;
    cr_assert_eq(raft_entry_bytes(&entry).size, 0);
}

static struct raft_members some_members(uint32_t count) {
    struct raft_members members = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        members.member[i].id = UINT64_MAX - i;
        members.member[i].voter = i % 3 != 2;
        memset(members.member[i].address, 'a' + (int)i, i == 0 ? RAFT_ADDRESS_MAX - 1 : i);
    }
    return members;
}

static bool members_same(const struct raft_members *a, const struct raft_members *b) {
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct raft_member *x = &a->member[i], *y = &b->member[i];
        if (x->id != y->id || x->voter != y->voter || strcmp(x->address, y->address) != 0) return false;
    }
    return true;
}

Test(entry, members_are_found_and_counted) {
    struct raft_members members = some_members(5);
    cr_assert_eq(raft_members_find(&members, UINT64_MAX - 3), &members.member[3]);
    cr_assert_null(raft_members_find(&members, 1));
    cr_assert_eq(raft_members_voters(&members), 4);
}

Test(entry, members_come_back_as_they_were) {
    for (uint32_t count = 0; count <= RAFT_MEMBERS_MAX; count++) {
        struct raft_members members = some_members(count), back;
        struct buffer bytes = {0};
        buffer_append_text(&bytes, "before"); /* it appends */
        raft_members_encode(&members, &bytes);
        memset(&back, 0xee, sizeof back);
        cr_assert_eq(raft_members_decode(slice_make(bytes.data + 6, bytes.size - 6), &back), CO_OK);
        cr_assert(members_same(&members, &back));
        buffer_free(&bytes);
    }
}

Test(entry, recoveries_come_back_in_order_or_are_refused) {
    static const struct {
        uint64_t recovered;
        struct raft_recoveries all;
        int rv;
    } rows[] = {
        {0, {0}, CO_OK},
        {9, {0}, CO_OK}, /* a build that only knew that wrote it */
        {9, {1, {{9, 1001, 0, UINT64_MAX}}}, CO_OK},
        {30, {2, {{9, 1001, 1, 7}, {30, 2001, 1001, 7}}}, CO_OK},
        {8,
         {8,
          {{1, 2, 1, 7},
           {2, 3, 2, 7},
           {3, 4, 3, 7},
           {4, 5, 4, 7},
           {5, 6, 5, 7},
           {6, 7, 6, 7},
           {7, 8, 7, 7},
           {8, UINT64_MAX, UINT64_MAX - 1, 7}}},
         CO_OK},
        {9, {2, {{9, 1001, 1, 7}, {30, 2001, 1001, 7}}}, CO_CORRUPT},
        {30, {2, {{30, 1001, 1, 7}, {30, 2001, 1001, 7}}}, CO_CORRUPT},
        {9, {1, {{9, 5, 5, 7}}}, CO_CORRUPT},
        {0, {1, {{0, 5, 4, 7}}}, CO_CORRUPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct raft_members members = some_members(3), back;
        members.recovered_index = rows[i].recovered, members.recoveries = rows[i].all;
        struct buffer bytes = {0};
        raft_members_encode(&members, &bytes);
        cr_expect_eq(raft_members_decode(buffer_slice(&bytes), &back), rows[i].rv, "row %zu", i);
        if (rows[i].rv == CO_OK) {
            cr_expect(back.recovered_index == rows[i].recovered && back.recoveries.count == rows[i].all.count,
                      "row %zu", i);
            cr_expect(memcmp(back.recoveries.item, rows[i].all.item, sizeof back.recoveries.item) == 0, "row %zu", i);
        }
        /* one more than there may be: a ninth, of the smallest kind */
        for (uint32_t more = back.recoveries.count; rows[i].rv == CO_OK && more <= RAFT_RECOVERIES_MAX; more++)
            buffer_append(&bytes, "\x1a\x02\x10\x01", 4);
        if (rows[i].rv == CO_OK)
            cr_expect_eq(raft_members_decode(buffer_slice(&bytes), &back), CO_CORRUPT, "row %zu", i);
        buffer_free(&bytes);
    }
}

/* Every bound, by members that are out of it: bytes are put together by hand. */
static void put_member(struct buffer *out, uint64_t id, size_t address_size) {
    struct buffer member = {0};
    buffer_append_byte(&member, 0x08);
    do {
        buffer_append_byte(&member, (char)((id & 0x7f) | (id > 0x7f ? 0x80 : 0)));
        id >>= 7;
    } while (id);
    buffer_append_byte(&member, 0x1a);
    buffer_append_byte(&member, (char)((address_size & 0x7f) | 0x80));
    buffer_append_byte(&member, (char)(address_size >> 7));
    for (size_t i = 0; i < address_size; i++) buffer_append_byte(&member, 'a');
    buffer_append_byte(out, 0x0a);
    buffer_append_byte(out, (char)((member.size & 0x7f) | 0x80));
    buffer_append_byte(out, (char)(member.size >> 7));
    buffer_append(out, member.data, member.size);
    buffer_free(&member);
}

static int decode_members(uint32_t count, uint64_t id, uint64_t step, size_t address_size) {
    struct buffer bytes = {0};
    struct raft_members members;
    for (uint32_t i = 0; i < count; i++) put_member(&bytes, id + i * step, address_size);
    int rv = raft_members_decode(buffer_slice(&bytes), &members);
    cr_assert_eq(members.count, rv == CO_OK ? count : 0);
    buffer_free(&bytes);
    return rv;
}

Test(entry, members_out_of_bounds_are_refused) {
    cr_assert_eq(decode_members(3, 1, 1, 20), CO_OK);
    cr_assert_eq(decode_members(RAFT_MEMBERS_MAX, 1, 1, RAFT_ADDRESS_MAX - 1), CO_OK);
    cr_assert_eq(decode_members(RAFT_MEMBERS_MAX + 1, 1, 1, 20), CO_CORRUPT);
    cr_assert_eq(decode_members(3, 0, 1, 20), CO_CORRUPT, "no id is 0");
    cr_assert_eq(decode_members(2, 7, 0, 20), CO_CORRUPT, "ids differ");
    cr_assert_eq(decode_members(1, 7, 0, RAFT_ADDRESS_MAX), CO_CORRUPT);
    cr_assert_eq(decode_members(1, 7, 0, 10000), CO_CORRUPT);
}

Test(entry, any_bytes_are_survived) {
    struct rng rng;
    rng_seed(&rng, 3);
    struct buffer good = {0};
    struct raft_members members = some_members(4);
    raft_members_encode(&members, &good);
    for (int round = 0; round < 20000; round++) {
        char bytes[1024];
        size_t size = rng_below(&rng, good.size + 1);
        memcpy(bytes, good.data, size);
        for (uint64_t flips = rng_below(&rng, 4); flips > 0 && size > 0; flips--)
            bytes[rng_below(&rng, size)] = (char)rng_next(&rng);
        struct raft_members back;
        int rv = raft_members_decode(slice_make(bytes, size), &back);
        cr_assert(rv == CO_OK || rv == CO_CORRUPT);
        cr_assert(back.count <= RAFT_MEMBERS_MAX);
        for (uint32_t i = 0; i < back.count; i++)
            cr_assert(back.member[i].id && memchr(back.member[i].address, 0, RAFT_ADDRESS_MAX));
    }
    buffer_free(&good);
}
