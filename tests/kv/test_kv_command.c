/* The reader of the hot path's message agrees with protobuf's own, on what is valid and on what it says. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "base/random.h"
#include "kv/keys/kv.pb-c.h"
#include "kv/keys/kv_command.h"

static bool agrees(struct slice bytes, bool *valid) {
    struct kv_command_view view;
    *valid = kv_command_decode(bytes, &view);
    Pb__KvCommand *command = pb__kv_command__unpack(NULL, bytes.size, (const uint8_t *)bytes.data);
    /* protobuf-c takes a field of number 0 for an unknown one; it is none. */
    bool same = *valid ? command != NULL : !command || command->base.n_unknown_fields > 0;
    if (command && *valid)
        same = view.verb == (uint32_t)command->verb && view.flags == command->flags && view.index == command->index &&
               slice_equal(view.key, slice_make(command->key.data, command->key.len)) &&
               slice_equal(view.value, slice_make(command->value.data, command->value.len)) &&
               slice_starts(view.session, slice_text(command->session)) && view.token == command->token &&
               view.want_token == (command->want_token != 0) && slice_starts(view.fence, slice_text(command->fence));
    if (command) pb__kv_command__free_unpacked(command, NULL);
    return same;
}

static size_t random_command(struct rng *rng, uint8_t out[512]) {
    static uint8_t noise[64];
    char session[37] = "", fence[37] = "";
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = (Pb__KvVerb)rng_below(rng, 7);
    command.key = (ProtobufCBinaryData){rng_below(rng, sizeof noise), noise};
    command.value = (ProtobufCBinaryData){rng_below(rng, sizeof noise), noise};
    command.flags = rng_next(rng) >> rng_below(rng, 64);
    command.index = rng_next(rng) >> rng_below(rng, 64);
    memset(session, 's', rng_below(rng, 36));
    command.session = session;
    memset(fence, 'f', rng_below(rng, 36));
    command.fence = fence;
    command.token = rng_next(rng) >> rng_below(rng, 64);
    command.want_token = rng_below(rng, 2);
    return pb__kv_command__pack(&command, out);
}

Test(kv_command, numbers_longer_than_they_may_be) {
    static const struct {
        const char *bytes;
        size_t size;
        bool valid;
    } rows[] = {
        {"\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11, true}, /* flags */
        {"\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12, false},
        {"\xa0\x80\x80\x80\x00\x07", 6, true}, /* the tag of flags */
        {"\xa0\x80\x80\x80\x80\x00\x07", 7, false},
        {"\x12\x81\x80\x80\x80\x00k", 7, true}, /* the size of the key */
        {"\x12\x81\x80\x80\x80\x80\x00k", 8, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        bool valid;
        cr_expect(agrees(slice_make(rows[i].bytes, rows[i].size), &valid), "row %zu", i);
        cr_expect_eq(valid, rows[i].valid, "row %zu", i);
    }
}

Test(kv_command, agrees_with_protobuf) {
    struct rng rng;
    rng_seed(&rng, 7);
    unsigned valid_count = 0, invalid_count = 0;
    for (unsigned i = 0; i < 200000; i++) {
        uint8_t bytes[1024];
        bool valid;
        size_t size = random_command(&rng, bytes);
        cr_assert(agrees(slice_make(bytes, size), &valid) && valid, "case %u", i);
        size += random_command(&rng, bytes + size); /* the last value of a field counts */
        if (rng_below(&rng, 2)) size -= rng_below(&rng, size + 1);
        for (unsigned n = 0; n < rng_below(&rng, 3) && size != 0; n++)
            bytes[rng_below(&rng, size)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        cr_assert(agrees(slice_make(bytes, size), &valid), "case %u", i);
        valid_count += valid;
        invalid_count += !valid;
    }
    cr_expect(valid_count > 10000 && invalid_count > 10000, "%u, %u", valid_count, invalid_count);
}
