/* For modules whose things have a name each: functions for module_command.may and query_type.show that ask for one
 * resource by a text member of the request. `NAME` below is such a member. */
#ifndef COORD_REGISTRY_MODULE_ACCESS_H
#define COORD_REGISTRY_MODULE_ACCESS_H

#include "base/buffer.h"
#include "base/text.h"
#include "registry/module.h"

/* A command needs this level for its thing. */
#define ACCESS_MAY(FUNCTION, RESOURCE, LEVEL, TYPE, NAME)                                                           \
    static int FUNCTION(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {       \
        (void)txn;                                                                                                  \
        return access_require(check, ACCESS_##RESOURCE, slice_text(((const TYPE *)request)->NAME), ACCESS_##LEVEL); \
    }

/* A query of one thing is for those who may read it; they see all of it. */
#define ACCESS_SHOW_ONE(FUNCTION, RESOURCE, TYPE, NAME)                                                          \
    static int FUNCTION(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,      \
                        struct query_result *result) {                                                           \
        (void)txn, (void)result;                                                                                 \
        return access_require(check, ACCESS_##RESOURCE, slice_text(((const TYPE *)request)->NAME), ACCESS_READ); \
    }

/* A list keeps the rows that may be read. RESULT: the type of its message; n_ROWS and ROWS: the rows; NAME: a member of
 * a row. */
#define ACCESS_SHOW_LIST(FUNCTION, RESOURCE, RESULT, ROWS, NAME)                                                     \
    static int FUNCTION(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,          \
                        struct query_result *result) {                                                               \
        RESULT *list = (RESULT *)result->message;                                                                    \
        (void)txn, (void)request;                                                                                    \
        ACCESS_KEEP_ROWS(list->n_##ROWS, list->ROWS, access_shows(check, ACCESS_##RESOURCE, slice_text(row->NAME))); \
        return CO_OK;                                                                                                \
    }

/* For parts of a command that are refused by themselves: why the last check failed, in the check's arena. Begins as
 * Consul's text. */
static inline char *access_denied_text(const struct access_check *check) {
    struct buffer text = {0};
    buffer_append_text(&text, "Permission denied: ");
    access_missing_print(&check->missing, &text);
    buffer_append_text(&text, " is needed");
    char *copy = arena_strndup(check->arena, text.data, text.size);
    buffer_free(&text);
    return copy;
}

#endif
