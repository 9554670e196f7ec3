/* /v1/fence: the highest fencing token that a resource has accepted. */
#include "kv/fence/fence.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "kv/lock/lock.h"

static int status(const ProtobufCMessage *answer) { return ((const Pb__FenceAnswer *)answer)->accepted ? 200 : 412; }

static const struct message_member checked[] = {
    {.field = "accepted"}, {.field = "highest"}, {.field = "reason", .flags = MEMBER_OPTIONAL}, {0}};

#define RESOURCE                                                                                             \
    {                                                                                                        \
        "*resource", HTTP_TEXT, .help = "the resource that the lock protects, slashes included", .least = 1, \
                                .most = FENCE_NAME_MAX, .field = "resource"                                  \
    }
const struct http_route http_routes_fence[] = {
    {HTTP_PUT, "/v1/fence/*resource", http_declared, "lock:write of *resource",
     HTTP_PARAMS(RESOURCE, HTTP_DC,
                 {"token", HTTP_U64, .help = "the fencing token of whoever is about to write", .least = 1,
                  .required = true, .field = "token"},
                 {"lock", HTTP_TEXT,
                  .help = "accepted as long as the token holds this lock, of whatever mode; without it: when no higher "
                          "one was accepted before",
                  .least = 1, .most = QUEUE_NAME_MAX, .field = "lock"}),
     "May the holder of a token write to a resource? 412 when it may not", HTTP_OWN,
     .example = {"/v1/fence/billing/ledger?token=1", .status = 200},
     .endpoint = {.command = FENCE_CHECK, .answer = checked, .status = status}, .cli = {.command = "fence check"}},
    {HTTP_GET, "/v1/fence/*resource", http_declared, "lock:read of *resource", HTTP_PARAMS(RESOURCE, HTTP_READS),
     "The highest token that a resource has accepted", HTTP_OWN, .example = {"/v1/fence/billing/ledger", .status = 200},
     .endpoint = {.query = &query_fence, .watched = "fence", .missing = "has accepted no token yet"},
     .cli = {.command = "fence get"}},
    {0},
};
