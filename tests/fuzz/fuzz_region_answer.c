/* Another region's answer about its catalog (pb.CatalogChangesResult), as the follower takes it: whatever the bytes,
 * the follower's proposal fits into a command and decodes there. */
#include "base/check.h"
#include "base/message.h"
#include "multi-dc/follower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 40 };

/* Our copy is at this moment, and has one instance. */
static void tell_copy(struct follower *follower, const struct follower_effect *effect, Pb__CatalogAt *at) {
    Pb__CopyResult result = PB__COPY_RESULT__INIT;
    Pb__CopyRegion region = PB__COPY_REGION__INIT;
    Pb__CopyCounts counts = PB__COPY_COUNTS__INIT;
    Pb__CatalogKey key = PB__CATALOG_KEY__INIT, *keys[] = {&key};
    key.service = key.node = key.id = (char *)(uintptr_t) "a";
    counts.instances = 1;
    region.at = at, region.counts = region.staged = &counts;
    if (at)
        result.region = &region, result.keys = keys, result.n_keys = ((const Pb__CopyRequest *)effect->message)->keys;
    struct arena arena = {0};
    struct follower_answer answer = {.records = message_pack(&arena, &result.base)};
    follower_answered(follower, effect->ticket, &answer, 0);
    arena_free(&arena);
}

static void check_command(const struct follower_effect *effect) {
    struct arena arena = {0};
    struct slice packed = message_pack(&arena, effect->message);
    CHECK(machine_decode(effect->message->descriptor, packed, &arena));
    if (effect->command == COPY_UPDATE) {
        const Pb__CopyUpdateCommand *command = (const Pb__CopyUpdateCommand *)effect->message;
        CHECK(command->to && command->n_entries + command->n_removed <= COPY_ROWS_MOST);
    } else if (effect->command == COPY_STAGE) {
        const Pb__CopyStageCommand *command = (const Pb__CopyStageCommand *)effect->message;
        CHECK(command->to && command->n_entries + command->n_removed > 0);
    }
    arena_free(&arena);
}

/* The first byte: whether there is a copy, and how many rows a command takes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    Pb__CatalogAt at = PB__CATALOG_AT__INIT;
    struct follower *follower = follow_catalog("far");
    struct follower_effect effect;
    bool told = false;
    at.cluster_id = 1, at.index = 5;
    follower_rows_most(follower, 1 + data[0] / 2 % 4);
    follower_leads(follower, true, 0);
    for (unsigned i = 0; i < STEPS; i++) {
        follower_next(follower, 0, &effect);
        if (effect.wish == FOLLOWER_RESTS) break;
        if (effect.wish == FOLLOWER_READS) {
            tell_copy(follower, &effect, data[0] % 2 ? &at : NULL);
        } else if (effect.wish == FOLLOWER_ASKS) {
            if (told) break;
            told = true;
            struct follower_answer answer = {.records = slice_make(data + 1, size - 1), .index = 6};
            follower_answered(follower, effect.ticket, &answer, 0);
        } else {
            check_command(&effect);
            follower_proposed(follower, effect.ticket, CO_OK, CO_OK, true, 9, 0);
        }
    }
    follower_free(follower);
    return 0;
}
