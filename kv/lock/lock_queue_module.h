/* For the modules that are families of queues (kv/lock/lock.c, kv/election/election.c): the functions that the rows of
 * registry/module.h, registry/expiry.h and the queries need. They have no argument for the family, so each family has
 * its own; each passes on to the function of kv/lock/lock_queue.h with the family. */
#ifndef COORD_KV_LOCK_QUEUE_MODULE_H
#define COORD_KV_LOCK_QUEUE_MODULE_H

#include "kv/lock/lock_queue.h"

/* As module_command.apply of a command, for queue_NAME. */
#define QUEUE_APPLY(family, name)                                                                  \
    static int name##_apply(struct machine_tx *tx, void *request, struct machine_result *result) { \
        return queue_##name(tx, &family, request, result);                                         \
    }

/* As query_type.run, for queue_NAME_run. */
#define QUEUE_RUN(family, name)                                                                        \
    static int name##_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena, \
                          struct query_result *result) {                                               \
        return queue_##name##_run(txn, &family, request, arena, result);                               \
    }

/* As query_type.watched. */
#define QUEUE_WATCHED(name, space) \
    static struct watch_key name##_watched(const ProtobufCMessage *request) { return queue_watched(space, request); }

/* As module_binding.ended, expiry_kind.read and .end. */
#define QUEUE_ENDS(family)                                                                                             \
    static int session_ended(struct machine_tx *tx, const struct binding_end *end) {                                   \
        return queue_session_ended(tx, &family, end);                                                                  \
    }                                                                                                                  \
    static int delays_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {         \
        return queue_delays_read(txn, &family, leader, expiry);                                                        \
    }                                                                                                                  \
    static void delay_end(const struct expiry_due *due, const struct expiry_leader *leader,                            \
                          void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) { \
        queue_delay_end(&family, due, leader, propose, data);                                                          \
    }

#endif
