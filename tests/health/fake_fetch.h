/* rpc_fetch over a state machine: a thread of its own answers at once, as servers and client agents do for reads that do not wait. */
#ifndef COORD_TESTS_HEALTH_FAKE_FETCH_H
#define COORD_TESTS_HEALTH_FAKE_FETCH_H

#include "rpc/rpc.h"

struct fake_fetches;
struct fake_fetches *fake_fetches_start(struct rpc *rpc);
void fake_fetches_stop(struct fake_fetches *fetches);      /* what waits ends with CO_CLOSED */
void fake_fetches_take(struct fake_fetches *fetches, struct rpc_fetch *fetch, const ProtobufCMessage *request);
void fake_fetches_cancel(struct fake_fetches *fetches, struct rpc_fetch *fetch);

#endif
