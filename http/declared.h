/* What the rows of the routing table say of parameters: looked up, read, checked. */
#ifndef COORD_HTTP_DECLARED_H
#define COORD_HTTP_DECLARED_H

#include "base/error.h"
#include "http/message_fill.h"
#include "http/route.h"

/* All rows of a list, those of its groups in place of them. HTTP_SESSION is followed by its group. */
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
/* Is it given by whoever asks? */
static inline bool declared_is_given(const struct http_param *param) { return param->type < HTTP_GROUP; }

/* Reads a value as its row wants it. CO_INVALID and a line that names parameter, value and what is wanted.
 * `has_value`: a '=' followed the name. The value's text is `text`, in lower case for a UUID. */
int declared_parse(const struct http_param *param, struct slice text, bool has_value, struct message_value *value,
                   struct fault *fault);
/* What is wanted, for people: "a duration, from 1s to 24h". Appends. */
void declared_wanted(const struct http_param *param, struct buffer *out);

/* All parameters and path values of a request against its route. False: it has replied 400. */
bool declared_check(struct http_request *request);

/* Fills a message from the request: what is declared in the route's params, body and raw. NULL: it has replied. The
 * request has passed declared_check. */
ProtobufCMessage *declared_message(struct http_request *request, const ProtobufCMessageDescriptor *type);

/* Asserts that the rows fit: fields are there and take what is put into them, an example or why not, ... `modules`
 * holds the commands. */
struct modules;
void declared_verify(const struct modules *modules);

#endif
