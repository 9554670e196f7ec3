/* A feed: an answer that other threads write while it is sent, until the client goes, or the server stops.
 *
 *     parked --bytes come--> resumed --all sent--> parked
 *
 * Any thread puts bytes in, and never waits: those that a slow client has not taken yet lie in a ring of a fixed size,
 * and what does not fit is refused. The worker owns everything else. A feed ends when its client may not have it any more. */
#ifndef COORD_HTTP_FEED_H
#define COORD_HTTP_FEED_H

#include "http/http.h"

struct http_feed;

/* Worker thread. `ended` is called on it, once, when the request has ended, also when the server stops; from then on
 * nobody may put anything in. */
struct http_feed *http_feed_new(struct http_request *request, size_t ring_bytes, void (*ended)(void *data), void *data);
/* Replies 200 and sends what comes. The request may end before this returns, so its `data` has to be complete. */
void http_feed_answer(struct http_feed *feed, const char *content_type);
/* Any thread, from http_feed_new until `ended` returns. False: there is no room for both; nothing was put in. */
bool http_feed_put(struct http_feed *feed, struct slice first, struct slice second);

#endif
