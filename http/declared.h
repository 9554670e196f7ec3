/* Looks up, parses and checks parameters as the rows of the routing table declare them. */
#ifndef COORD_HTTP_DECLARED_H
#define COORD_HTTP_DECLARED_H

#include "base/error.h"
#include "http/message_fill.h"
#include "http/route.h"

/* Walks all rows of a list; a group is replaced by its rows. HTTP_SESSION is followed by its group. */
struct declared_walk {
    const struct http_param *at[4];
    unsigned depth;
};
struct declared_walk declared_begin(const struct http_param *params);
const struct http_param *declared_next(struct declared_walk *walk); /* NULL: no more */
const struct http_param *declared_find(const struct http_param *params, struct slice name);
static inline bool declared_in_path(const struct http_param *param) {
    return param->name && (param->name[0] == ':' || param->name[0] == '*' || param->name[0] == '+');
}
/* Does the client give this parameter? */
static inline bool declared_is_given(const struct http_param *param) { return param->type < HTTP_GROUP; }

/* Parses a value as its row declares it. CO_INVALID and a line that names parameter, value and the wanted form.
 * `has_value`: a '=' followed the name. The value's text is `text`, in lower case for a UUID. */
int declared_parse(const struct http_param *param, struct slice text, bool has_value, struct message_value *value,
                   struct fault *fault);
/* Appends the wanted form, for people: "a duration, from 1s to 24h". */
void declared_wanted(const struct http_param *param, struct buffer *out);

/* Checks all parameters and path values of a request against its route. False: it has replied 400. */
bool declared_check(struct http_request *request);

/* Makes a message from the request: fills the fields that the route's params, body and raw declare. NULL: it has
 * replied. The request has passed declared_check. */
ProtobufCMessage *declared_message(struct http_request *request, const ProtobufCMessageDescriptor *type);

/* Asserts that the rows are consistent: fields exist and take the values that are put into them, each row has an
 * example or says why not, ... `modules` holds the commands. */
struct modules;
void declared_verify(const struct modules *modules);

#endif
