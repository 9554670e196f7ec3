/* Inside the catalog: keys and records. tables.h lists the tables. */
#ifndef COORD_REGISTRY_CATALOG_RECORDS_H
#define COORD_REGISTRY_CATALOG_RECORDS_H

#include "base/memory.h"
#include "registry/catalog.h"
#include "registry/fold.h"
#include "registry/tables.h"

/* -- keys: `room` has STORE_KEY_MAX bytes ------------------------------------------------------------------------- */
/* Names are folded in them, where they are in this transaction (registry/fold.h). */
struct slice key_node(char *room, struct slice node);
struct slice key_service(char *room, struct slice node, struct slice id);
struct slice key_check(char *room, struct slice node, struct slice service_id, struct slice check_id);
struct slice key_check_id(char *room, struct slice node, struct slice check_id);
struct slice key_instance(char *room, struct slice name, struct slice node, struct slice id);
struct slice key_stray(char *room, struct slice name, struct slice node, struct slice check_id);
struct slice key_name(char *room, struct slice name); /* the prefix of a service's keys */
/* TABLE_TAGS counts by the name as it is written. */
struct slice key_count(char *room, struct slice name);
struct slice key_tag(char *room, struct slice name, struct slice tag);
/* Lower case, for TABLE_SPELLINGS and TABLE_NODE_IDS. */
enum spelling_kind { SPELLING_NODE = 'n', SPELLING_SERVICE = 's' };
struct slice key_spelling(char *room, enum spelling_kind kind, struct slice name);
struct slice key_spellings(char *room, enum spelling_kind kind,
                           struct slice name);         /* prefix: all that differ in case only */
struct slice key_node_id(char *room, struct slice id); /* id: at most STORE_PART_MAX bytes */

/* A list in an arena, grown by doubling. */
struct pointers {
    void **items;
    size_t count, room;
};
void pointers_add(struct pointers *list, struct arena *arena, void *item);

/* -- records ------------------------------------------------------------------------------------------------------ */
/* NULL: the record does not decode (and the transaction fails). */
Pb__Node *record_node(struct store_txn *txn, struct arena *arena, struct slice bytes);
Pb__Service *record_service(struct store_txn *txn, struct arena *arena, struct slice bytes);
Pb__Check *record_check(struct store_txn *txn, struct arena *arena, struct slice bytes);
/* Appends the services or checks whose keys begin with `prefix`, unpacked. CO_CORRUPT: one does not decode (as above);
 * the others are in the list. */
int record_services_below(struct store_txn *txn, struct arena *arena, struct slice prefix, struct pointers *services);
int record_checks_below(struct store_txn *txn, struct arena *arena, struct slice prefix, struct pointers *checks);
/* One field of a packed record, without unpacking it: empty or 0 when it is not there. */
struct slice record_text(struct slice bytes, unsigned field);
uint64_t record_number(struct slice bytes, unsigned field);
enum {
    NODE_NAME_FIELD = 1,
    NODE_ID_FIELD = 2,
    NODE_ADDRESS_FIELD = 3,
    NODE_CREATE_FIELD = 7,
    NODE_LEASE_FIELD = 9,
    SERVICE_NODE_FIELD = 1,
    SERVICE_ID_FIELD = 2,
    SERVICE_NAME_FIELD = 3,
    SERVICE_ADDRESS_FIELD = 5,
    SERVICE_CREATE_FIELD = 13,
    SERVICE_MODIFY_FIELD = 14,
    CHECK_STATUS_FIELD = 4,
    CHECK_SERVICE_NAME_FIELD = 8,
    CHECK_CREATE_FIELD = 12,
    CHECK_MODIFY_FIELD = 13,
};

#endif
