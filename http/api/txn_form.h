/* Transactions as clients write them in JSON, into their command. */
#ifndef COORD_HTTP_API_TXN_FORM_H
#define COORD_HTTP_API_TXN_FORM_H

#include "http/http.h"
#include "kv/txn/txn.h"

struct txn_form {
    struct http_request *request;
    Pb__TxnCommand command; /* in the request's arena, as all of it */
    /* It cannot be read, or is too large: answer this. The first sticks. */
    int status; /* 0: it can */
    char text[320];
    /* Operations that cannot be done whatever is stored, as Consul finds them before it asks anybody. */
    Pb__TxnError **errors;
    size_t error_count, error_room;
    struct buffer scratch;
};

/* A list of operations; `where` says which, for errors ("", "Then"). */
void txn_form_ops(struct txn_form *form, struct json_object *list, const char *where, Pb__TxnOp ***ops, size_t *count);
void txn_form_compares(struct txn_form *form, struct json_object *list); /* into the command */
/* No more operations than are configured. */
void txn_form_count(struct txn_form *form, size_t count);
void txn_form_free(struct txn_form *form);

/* For the files of this: the first fault sticks. */
void txn_form_fault(struct txn_form *form, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
