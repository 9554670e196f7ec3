/* A budget as JSON, in reads, lists, and streams. */
#ifndef COORD_HTTP_API_QUOTA_VIEWS_H
#define COORD_HTTP_API_QUOTA_VIEWS_H

#include "http/message_json.h"

/* Of pb.QuotaState: message_json, or `answer` of a row (http/route.h). */
extern const struct message_member quota_members_one[];
extern const struct message_member quota_members_listed[]; /* without its leases */

#endif
