/* Definitions of services and checks, as far as the parts of health/ share them beyond local.h. */
#ifndef COORD_HEALTH_DEFINITION_H
#define COORD_HEALTH_DEFINITION_H

#include "base/json_in.h"
#include "base/json_out.h"
#include "health/local.h"

/* A definition that several threads read. Immutable once it is shared. */
struct check_shared {
    _Atomic unsigned references;
    struct check_definition *definition; /* owned */
};
/* one reference; takes over the definition */
struct check_shared *check_shared_new(struct check_definition *definition);
struct check_shared *check_shared_take(struct check_shared *shared);
void check_shared_drop(struct check_shared *shared); /* NULL allowed */

/* The node's own check, which follows its agent's lease: nobody may define it. */
#define CHECK_OWN_ID "serfHealth"

/* Makes a definition for a record that nobody defined here: it has the ids, and is empty otherwise. */
struct check_definition *check_definition_blank(const char *check_id, const char *service_id);

/* "http", "tcp", "ttl", "os_service"; "" for CHECK_NONE. Consul's Type. */
const char *check_kind_text(enum check_kind kind);
/* Runs a program: a script, or systemctl. */
static inline bool check_kind_is_program(enum check_kind kind) {
    return kind == CHECK_SCRIPT || kind == CHECK_OS_SERVICE;
}
/* NULL: not one of "passing", "warning", "critical". */
const Pb__Status *check_status_parse(const char *text);

/* A check inside a service definition, or by itself. `inside`: ids and names may be missing, faults begin as those of
 * services. NULL without a fault: the object is empty, so there is no check. */
struct check_definition *check_definition_read(struct json_object *json, bool inside, struct fault *fault);

/* -- for definition.c: the parts about programs (definition_program.c) */
/* Reads Args or ScriptArgs; without either the check has no arguments. */
void check_args_read(struct json_object *json, struct check_definition *definition, struct fault *fault);
/* Sets a fault unless systemctl takes the name for a unit, and neither for an option nor for a pattern, or it is
 * empty. */
void check_unit_judge(const char *unit, struct fault *fault);

void token_free(char *token); /* wipes it; NULL allowed */
/* A token of a definition, in place of the one before. */
void token_set(char **field, struct slice token);
/* The member "Token"; a fault when it is too long. */
char *token_read(struct json_object *json, struct fault *fault);

/* Apart from their tokens. */
bool check_definition_same(const struct check_definition *a, const struct check_definition *b);
/* Writes the definition in the spelling of the API, so that *_parse reads an equal one back: for files, because the token
 * is in it. */
void check_definition_write(struct json_out *json, const struct check_definition *definition);
/* The members of a service without its checks; the caller has opened the object. */
void service_definition_write(struct json_out *json, const Pb__Service *service);

/* protobuf-c records on the heap, freed by *_free_unpacked(record, NULL). */
Pb__Service *service_copy(const Pb__Service *service);
void pb_set(char **field, const char *text); /* frees the old text; "" becomes protobuf-c's own empty string */

#endif
