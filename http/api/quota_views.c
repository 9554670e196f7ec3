#include "http/api/quota_views.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"
#include "base/text.h"
#include "kv/quota/quota.h"

static void member_text(struct json_out *json, const char *key, const char *text) {
    json_key_slice(json, slice_text(key));
    json_string(json, text);
}

static void member_number(struct json_out *json, const char *key, uint64_t number) {
    json_key_slice(json, slice_text(key));
    json_u64(json, number);
}

static void member_part(struct json_out *json, const char *key, uint32_t millionths) {
    json_key_slice(json, slice_text(key));
    json_double(json, millionths / (double)QUOTA_WHOLE);
}

static void member_duration(struct json_out *json, const char *key, uint64_t ms) {
    struct buffer text = {0};
    duration_format(&text, (int64_t)ms * 1000000);
    json_key_slice(json, slice_text(key));
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

/* -- the definition ----------------------------------------------------------------------------------------------- */

static const char *const modes[] = {
    [PB__QUOTA_MODE__QUOTA_LEASE] = "lease",
    [PB__QUOTA_MODE__QUOTA_OWNER] = "owner",
    [PB__QUOTA_MODE__QUOTA_BOUNDED] = "bounded",
};
static const char *const losses[] = {
    [PB__QUOTA_LOSS__QUOTA_CLOSED] = "closed",
    [PB__QUOTA_LOSS__QUOTA_OPEN] = "open",
    [PB__QUOTA_LOSS__QUOTA_LAST] = "last",
};
static const char *const windows[] = {
    [PB__QUOTA_WINDOW__QUOTA_MINUTE] = "minute",
    [PB__QUOTA_WINDOW__QUOTA_HOUR] = "hour",
    [PB__QUOTA_WINDOW__QUOTA_DAY] = "day",
    [PB__QUOTA_WINDOW__QUOTA_MONTH] = "month",
};

static void write_refill(struct json_out *json, const Pb__QuotaDefinition *definition) {
    json_key(json, "Refill");
    json_object(json);
    if (definition->window) {
        int minutes = abs(definition->offset_minutes);
        char offset[32];
        (void)snprintf(offset, sizeof offset, "%c%02d:%02d", definition->offset_minutes < 0 ? '-' : '+', minutes / 60,
                       minutes % 60);
        member_text(json, "Window", windows[definition->window]);
        member_text(json, "Offset", offset);
    } else {
        member_number(json, "Tokens", definition->tokens);
        member_duration(json, "Every", definition->every_ms);
    }
    json_object_end(json);
}

/* Writes the definition: the members that apply to its mode, as given or by default. */
static void write_definition(struct json_out *json, const ProtobufCMessage *message, void *context) {
    (void)context;
    const Pb__QuotaDefinition *definition = ((const Pb__QuotaState *)message)->record->definition;
    member_text(json, "Name", definition->name);
    member_number(json, "Budget", definition->budget);
    if (!definition->window) member_number(json, "Burst", definition->burst);
    write_refill(json, definition);
    member_text(json, "Mode", modes[definition->mode]);
    member_duration(json, "LeaseTTL", definition->lease_ttl_ms);
    member_part(json, "MaxLeaseFraction", definition->max_lease);
    if (definition->mode == PB__QUOTA_MODE__QUOTA_BOUNDED) {
        member_part(json, "Drift", definition->drift);
        member_part(json, "LowWatermark", definition->low_watermark);
        if (definition->unknown_slack_given) member_part(json, "UnknownSlack", definition->unknown_slack);
    }
    member_text(json, "OnLoss", losses[definition->on_loss]);
    if (definition->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) member_number(json, "LocalCap", definition->local_cap);
    if (definition->on_loss == PB__QUOTA_LOSS__QUOTA_LAST) member_duration(json, "LastFor", definition->last_for_ms);
    if (definition->mode != PB__QUOTA_MODE__QUOTA_OWNER) return;
    member_text(json, "Service", definition->service);
    if (definition->split) member_number(json, "Split", definition->split);
}

/* -- the rest of the budget --------------------------------------------------------------------------------------- */

static void write_sums(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__QuotaState *state = (const Pb__QuotaState *)message;
    const Pb__QuotaRecord *record = state->record;
    uint64_t spent = record->spent;
    (void)context;
    for (size_t i = 0; i < state->n_leases; i++) spent += state->leases[i]->reported; /* owner mode: of all keys */
    member_number(json, "Capacity", state->capacity);
    json_key(json, "Available");
    json_i64(json, state->available);
    member_number(json, "Spent", spent);
    member_number(json, "Leased", record->leased);
    member_number(json, "Slack", record->slack);
    member_number(json, "Stranded", record->stranded);
    json_key(json, "Starving");
    json_bool(json, record->starving);
}

static void write_texts(struct json_out *json, char *const *texts, size_t count) {
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, texts[i]);
    json_array_end(json);
}

static void write_hot(struct json_out *json, const Pb__QuotaState *state) {
    json_key(json, "HotKeys");
    json_array(json);
    for (size_t i = 0; i < state->n_leases; i++)
        for (size_t j = 0; j < state->leases[i]->n_hot; j++) {
            const Pb__QuotaHotKey *hot = state->leases[i]->hot[j];
            json_object(json);
            json_key(json, "Key"), json_slice(json, message_slice(hot->key));
            json_key(json, "Rate"), json_double(json, hot->rate);
            member_text(json, "Owner", state->leases[i]->node);
            json_object_end(json);
        }
    json_array_end(json);
}

static void write_splits(struct json_out *json, const Pb__QuotaRecord *record) {
    json_key(json, "Splits");
    json_array(json);
    for (size_t i = 0; i < record->n_splits; i++) {
        const Pb__QuotaSplit *split = record->splits[i];
        json_object(json);
        json_key(json, "Key"), json_slice(json, message_slice(split->key));
        json_key(json, "Amounts");
        json_array(json);
        for (size_t j = 0; j < split->n_amounts; j++) json_u64(json, split->amounts[j]);
        json_array_end(json);
        json_object_end(json);
    }
    json_array_end(json);
}

static bool is_active(const Pb__QuotaRecord *record, uint64_t lease) {
    for (size_t i = 0; i < record->n_active_leases; i++)
        if (record->active_leases[i] == lease) return true;
    return false;
}

/* Writes Members, in answers that show leases. */
static void write_members(struct json_out *json, const Pb__QuotaState *state) {
    json_key(json, "Members");
    json_array(json);
    for (size_t i = 0; i < state->n_leases; i++) {
        const Pb__QuotaLease *lease = state->leases[i];
        json_object(json);
        member_text(json, "Node", lease->node);
        member_number(json, "Lease", lease->id);
        json_key(json, "Counts"), json_bool(json, is_active(state->record, lease->id));
        member_number(json, "Acknowledged", lease->acked);
        member_number(json, "Admitted", lease->reported);
        json_object_end(json);
    }
    json_array_end(json);
}

static void write_losses(struct json_out *json, const Pb__QuotaRecord *record) {
    json_key(json, "Losses");
    json_array(json);
    for (size_t i = 0; i < record->n_losses; i++) {
        json_object(json);
        member_text(json, "Node", record->losses[i]->node);
        member_number(json, "Index", record->losses[i]->index);
        member_number(json, "ActiveEpoch", record->losses[i]->active);
        json_object_end(json);
    }
    json_array_end(json);
    if (record->losses_before) member_number(json, "LossesBefore", record->losses_before);
}

static void write_owners(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__QuotaState *state = (const Pb__QuotaState *)message;
    const Pb__QuotaRecord *record = state->record;
    (void)context;
    if (record->definition->mode != PB__QUOTA_MODE__QUOTA_OWNER) return;
    member_number(json, "Epoch", record->epoch);
    member_number(json, "ActiveEpoch", record->active);
    json_key(json, "ActiveMembers");
    write_texts(json, record->active_members, record->n_active_members);
    if (state->n_leases) write_members(json, state);
    write_losses(json, record);
    write_hot(json, state);
    write_splits(json, record);
}

static const struct message_member lease[] = {{.name = "Owner", .field = "node"},
                                              {.name = "Granted", .field = "balance"},
                                              {.name = "TTL", .field = "ttl_ms"},
                                              {.field = "id"},
                                              {.field = "session"},
                                              {.field = "wants"},
                                              {.field = "priority"},
                                              {0}};
static const struct message_member bound[] = {{.field = "leases"}, {.field = "drift"},     {.field = "local_caps"},
                                              {.field = "last"},   {.field = "hand_over"}, {0}};

#define BEGIN_MEMBERS \
    {.write = write_definition}, {.write = write_sums}, { .write = write_owners }
#define END_MEMBERS                                                                                                   \
    {.name = "WorstCaseOverAdmission", .field = "worst_case"}, {.name = "Bound", .field = "bound", .members = bound}, \
        {.name = "Agents", .field = "agents"}, {.name = "DefinedIndex", .field = "record.defined_index"},             \
        {.name = "CreateIndex", .field = "record.create_index"}, {.field = "modify_index"}, {                         \
        0                                                                                                             \
    }
const struct message_member quota_members_one[] = {
    BEGIN_MEMBERS, {.name = "Leases", .field = "leases", .members = lease}, END_MEMBERS};
const struct message_member quota_members_listed[] = {BEGIN_MEMBERS, END_MEMBERS};
