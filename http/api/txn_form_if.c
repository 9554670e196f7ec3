/* Comparisons of PUT /v1/txn/if. */
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/text.h"
#include "http/api/txn_form.h"
#include "kv/lock/lock_queue.h"

enum { KEYS = 1, RECORDS = 2, LOCKS = 4, ELECTIONS = 8 };

/* The members that can be compared, with their names in JSON. */
static const struct field {
    const char *name;
    unsigned of;
    Pb__TxnField field;
    enum { SWITCH, NUMBER, TEXT, BYTES } type;
} fields[] = {
    {"Exists", KEYS | RECORDS, PB__TXN_FIELD__TXN_EXISTS, SWITCH},
    {"Value", KEYS, PB__TXN_FIELD__TXN_VALUE, BYTES},
    {"CreateIndex", KEYS | RECORDS, PB__TXN_FIELD__TXN_CREATE_INDEX, NUMBER},
    {"ModifyIndex", KEYS | RECORDS, PB__TXN_FIELD__TXN_MODIFY_INDEX, NUMBER},
    {"LockIndex", KEYS, PB__TXN_FIELD__TXN_LOCK_INDEX, NUMBER},
    {"Session", KEYS, PB__TXN_FIELD__TXN_SESSION_OF, TEXT},
    {"Lease", KEYS, PB__TXN_FIELD__TXN_LEASE_OF, TEXT},
    {"FencingToken", LOCKS, PB__TXN_FIELD__TXN_HELD, NUMBER},
    {"Term", ELECTIONS, PB__TXN_FIELD__TXN_HELD, NUMBER},
};

/* The kinds of things whose members can be compared. */
static const struct subject {
    const char *name;
    Pb__TxnThing thing;
    unsigned bit;
    const char *node, *id; /* the members that name the thing; NULL: not used */
    const char *known[12];
} subjects[] = {
    {"KV",
     PB__TXN_THING__TXN_KEY,
     KEYS,
     NULL,
     NULL,
     {"Key", "Op", "Exists", "Value", "CreateIndex", "ModifyIndex", "LockIndex", "Session", "Lease"}},
    {"Node", PB__TXN_THING__TXN_NODE, RECORDS, "Node", NULL, {"Node", "Op", "Exists", "CreateIndex", "ModifyIndex"}},
    {"Service",
     PB__TXN_THING__TXN_SERVICE,
     RECORDS,
     "Node",
     "ID",
     {"Node", "ID", "Op", "Exists", "CreateIndex", "ModifyIndex"}},
    {"Check",
     PB__TXN_THING__TXN_CHECK,
     RECORDS,
     "Node",
     "CheckID",
     {"Node", "CheckID", "Op", "Exists", "CreateIndex", "ModifyIndex"}},
    {"Lock", PB__TXN_THING__TXN_LOCK, LOCKS, NULL, "Name", {"Name", "FencingToken"}},
    {"Election", PB__TXN_THING__TXN_ELECTION, ELECTIONS, NULL, "Name", {"Name", "Term"}},
};

static void read_relation(struct json_object *json, const struct field *field, Pb__TxnCompare *compare,
                          struct fault *fault) {
    static const char *const relations[] = {"=", "!=", "<", ">"};
    const char *text = "=";
    json_get_string(json, "Op", &text, fault);
    size_t i = 0, most = field->type == NUMBER ? ARRAY_COUNT(relations) : 2;
    while (i < most && strcmp(text, relations[i]) != 0) i++;
    if (i == most)
        fault_set(fault, CO_INVALID, "Op: of %s one of %s is wanted, not \"%.20s\"", field->name,
                  most == 2 ? "= and !=" : "=, !=, < and >", text);
    compare->relation = (Pb__TxnRelation)i;
}

static void read_text(struct txn_form *form, struct json_object *json, const struct field *field,
                      Pb__TxnCompare *compare, struct fault *fault) {
    struct slice text = {0};
    struct buffer *bytes = &form->scratch;
    json_get_slice(json, field->name, &text, fault);
    if (!text.size) return;
    buffer_reset(bytes);
    if (field->type == TEXT) buffer_append(bytes, text.data, text.size);
    else if (base64_decode(bytes, text) != CO_OK) fault_set(fault, CO_INVALID, "%s: illegal base64 data", field->name);
    if (field->type == TEXT && uuid_valid(text)) bytes_lower(bytes->data, bytes->size);
    compare->text = (ProtobufCBinaryData){
        bytes->size, (uint8_t *)arena_strndup(http_arena(form->request), bytes->data, bytes->size)};
}

static void read_field(struct txn_form *form, struct json_object *json, const struct subject *subject,
                       Pb__TxnCompare *compare, struct fault *fault) {
    const struct field *field = NULL;
    bool there = false;
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        if (!(fields[i].of & subject->bit) || !json_get(json, fields[i].name)) continue;
        if (field) fault_set(fault, CO_INVALID, "it compares both %s and %s", field->name, fields[i].name);
        field = &fields[i];
    }
    if (!field) fault_set(fault, CO_INVALID, "it compares nothing");
    if (fault->code) return;
    compare->field = field->field;
    read_relation(json, field, compare, fault);
    if (field->type == SWITCH) json_get_bool(json, field->name, &there, fault), compare->number = there;
    else if (field->type == NUMBER) json_get_u64(json, field->name, UINT64_MAX, &compare->number, fault);
    else read_text(form, json, field, compare, fault);
}

static void read_name(struct json_object *json, const char *member, char **name, struct fault *fault) {
    const char *text = "";
    if (!member) return;
    json_get_string(json, member, &text, fault);
    if (!*text) fault_set(fault, CO_INVALID, "%s is wanted", member);
    *name = (char *)(uintptr_t)text;
}

static void read_compare(struct txn_form *form, struct json_object *json, Pb__TxnCompare *compare,
                         struct fault *fault) {
    static const char *const known[] = {"KV", "Node", "Service", "Check", "Lock", "Election", NULL};
    const struct subject *subject = NULL;
    if (!json_object_is_type(json, json_type_object)) {
        fault_set(fault, CO_INVALID, "an object is wanted, not %s", json_kind(json));
        return;
    }
    json_only_known(json, known, fault);
    for (size_t i = 0; i < ARRAY_COUNT(subjects); i++) {
        if (!json_get(json, subjects[i].name)) continue;
        if (subject) fault_set(fault, CO_INVALID, "it is of two kinds, %s and %s", subject->name, subjects[i].name);
        subject = &subjects[i];
    }
    if (!subject) fault_set(fault, CO_INVALID, "one of KV, Node, Service, Check, Lock and Election is wanted");
    struct json_object *object = fault->code ? NULL : json_get_object(json, subject->name, fault);
    if (!object) return;
    compare->thing = subject->thing;
    json_only_known(object, subject->known, fault);
    read_name(object, subject->node, &compare->node, fault);
    read_name(object, subject->id, &compare->id, fault);
    if (subject->bit == KEYS) {
        struct slice key = {0};
        json_get_slice(object, "Key", &key, fault);
        if (!key.size) fault_set(fault, CO_INVALID, "Key is wanted");
        compare->key = message_bytes(key);
    }
    if (subject->bit & (LOCKS | ELECTIONS) && *compare->id && !queue_name_fits(slice_text(compare->id)))
        fault_set(fault, CO_INVALID, "Name: it has at most %d bytes", QUEUE_NAME_MAX);
    if (!fault->code) read_field(form, object, subject, compare, fault);
}

void txn_form_compares(struct txn_form *form, struct json_object *list) {
    struct arena *arena = http_arena(form->request);
    Pb__TxnCommand *command = &form->command;
    size_t length = list && !form->status ? json_object_array_length(list) : 0;
    command->compares = arena_alloc(arena, (length + 1) * sizeof *command->compares);
    for (size_t i = 0; i < length && !form->status; i++) {
        struct fault fault = {0};
        Pb__TxnCompare *compare = command->compares[command->n_compares++] = arena_alloc(arena, sizeof *compare);
        pb__txn_compare__init(compare);
        read_compare(form, json_object_array_get_idx(list, i), compare, &fault);
        if (fault.code) txn_form_fault(form, 400, "Failed to parse body: If[%zu]: %s", i, fault.text);
    }
}
