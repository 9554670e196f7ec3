/* Parses transactions from JSON into their command. */
#ifndef COORD_HTTP_API_TXN_FORM_H
#define COORD_HTTP_API_TXN_FORM_H

#include "http/http.h"
#include "kv/txn/txn.h"

struct txn_form {
    struct http_request *request;
    Pb__TxnCommand command; /* all of it is in the request's arena */
    /* The answer when the form cannot be parsed, or is too large. The first fault stays. */
    int status; /* 0: no fault */
    char text[320];
    /* Operations that can never succeed, whatever is stored. Consul too reports them before it runs the transaction. */
    Pb__TxnError **errors;
    size_t error_count, error_room;
    struct buffer scratch;
};

/* Parses a list of operations; `where`: its name for errors ("", "Then"). */
void txn_form_ops(struct txn_form *form, struct json_object *list, const char *where, Pb__TxnOp ***ops, size_t *count);
void txn_form_compares(struct txn_form *form, struct json_object *list); /* into the command */
/* Refuses more operations than are configured. */
void txn_form_count(struct txn_form *form, size_t count);
void txn_form_free(struct txn_form *form);

/* For the files of the form only: the first fault stays. */
void txn_form_fault(struct txn_form *form, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
