/* One keep-alive HTTP connection to a server, for what the tool asks about its agents. Used by one thread. */
#ifndef COORD_TESTS_AGENTS_WEB_H
#define COORD_TESTS_AGENTS_WEB_H

#include <json-c/json_object.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct web;
struct web *web_new(const char *address); /* "HOST:PORT", valid as long as this is */
void web_free(struct web *web);
/* GET. The answer's JSON (json_object_put), and X-Consul-Index; NULL: no answer with status 200, or `stop` (NULL:
 * never) has become true. */
struct json_object *web_get(struct web *web, const char *path, uint64_t *index, const _Atomic bool *stop);

#endif
