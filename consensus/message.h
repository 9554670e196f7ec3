/* Messages between servers, and their bytes on the wire (protobuf, consensus/message.proto). */
#ifndef COORD_CONSENSUS_MESSAGE_H
#define COORD_CONSENSUS_MESSAGE_H

#include "base/memory.h"
#include "consensus/entry.h"

enum raft_message_type {
    RAFT_MSG_PREVOTE = 1,
    RAFT_MSG_PREVOTE_REPLY,
    RAFT_MSG_VOTE,
    RAFT_MSG_VOTE_REPLY,
    RAFT_MSG_APPEND, /* also the heartbeat (no entries) */
    RAFT_MSG_APPEND_REPLY,
    RAFT_MSG_SNAPSHOT, /* one chunk */
    RAFT_MSG_SNAPSHOT_REPLY,
    RAFT_MSG_TIMEOUT_NOW, /* transfer: campaign at once */
};

/* One flat struct; which fields count depends on the type. */
struct raft_message {
    enum raft_message_type type;
    uint64_t from, to, term;
    uint64_t last_index, last_term; /* *VOTE: the candidate's last entry. APPEND: the entry before the first (prev) */
    uint64_t commit;                /* APPEND */
    uint64_t round; /* APPEND, APPEND_REPLY, SNAPSHOT, SNAPSHOT_REPLY: the leader's heartbeat round, echoed */
    bool granted;   /* *VOTE_REPLY */
    bool transfer;  /* VOTE: campaign by transfer, the usual "there is a leader" refusal does not hold */
    bool degraded;  /* APPEND_REPLY: the sender's disk is degraded: do not hand leadership to it */
    bool full;      /* APPEND_REPLY: its disk has no room for commands, and it takes none */
    bool rejected;  /* APPEND_REPLY: prev did not match */
    uint64_t match; /* APPEND_REPLY: durable up to here; when rejected: the prev that was refused */
    /* APPEND_REPLY rejected: where to try next. SNAPSHOT_REPLY: hint_index = bytes stored */
    uint64_t hint_index, hint_term;
    struct raft_entry *entries; /* APPEND; the message's owner holds one reference of each */
    size_t entry_count;
    struct raft_snapshot_meta snapshot; /* SNAPSHOT, SNAPSHOT_REPLY (index, term) */
    uint64_t offset;                    /* SNAPSHOT: of `data`; */
    struct slice data;                  /* SNAPSHOT: the chunk's bytes, owned by the message's owner */
    bool last;                          /* SNAPSHOT: the last chunk */
    struct raft_recoveries recoveries;  /* APPEND, SNAPSHOT: of the leader's configuration; */
    bool recoveries_told;               /* false: an older build sent it, which does not tell recoveries */
};

/* Bounds of decoded messages; the core keeps its messages within them (encode checks the first). */
#define RAFT_MESSAGE_ENTRIES_MAX 65536
#define RAFT_MESSAGE_BYTES_MAX   (64u << 20)

/* Appends the message's bytes. The entries' indexes follow last_index without a gap. */
void raft_message_encode(const struct raft_message *message, struct buffer *out);
/* Decodes; entries get fresh data (one reference each, to be dropped with raft_message_drop), `data` points into
 * `bytes`. CO_CORRUPT on anything that is not a sane message (limits on counts and sizes included). */
int raft_message_decode(struct slice bytes, struct raft_message *message);
void raft_message_drop(struct raft_message *message); /* drops entry references and frees the entry array */

/* For an APPEND whose entries do not fit on the disk. raft_message_room: about how much its commands take in the log
 * (0: it has no commands, and is always accepted). raft_message_heard: the message without its entries, a heartbeat for
 * the beginning of the log (the core sends such ones too, when it does not know the term before `next`). The receiver
 * hears the leader and echoes its round, but promises nothing, and the leader sends the entries again with its next
 * heartbeat. Owns nothing. */
#define RAFT_ENTRY_OVERHEAD 64 /* in the log, besides its data */
uint64_t raft_message_room(const struct raft_message *append);
struct raft_message raft_message_heard(const struct raft_message *append);

#endif
