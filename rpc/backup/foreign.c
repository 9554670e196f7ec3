#include "rpc/backup/foreign.h"

#include "base/check.h"
#include "base/text.h"
#include "rpc/api/operator.h"

#define LINE_SHOWN 60

/* By bytes at a fixed place. */
static const struct known {
    size_t at;
    struct slice bytes;
    const char *what;
} known[] = {
    {16, SLICE_LITERAL("\xed\xda\x0c\xed"),
     "this is a snapshot of etcd, not of coord: coord cannot read it. Bring its keys over from a running etcd "
     "(etcdctl get --prefix), one `coord kv put` each"},
    {0, SLICE_LITERAL("ZKSN"),
     "this is a snapshot of ZooKeeper, not of coord: coord cannot read it. Bring its nodes over from a running "
     "ZooKeeper, "
     "one `coord kv put` each"},
    {0, SLICE_LITERAL("ZKLG"),
     "this is a log of ZooKeeper, not a backup of coord: coord cannot read it. Bring its nodes over from a running "
     "ZooKeeper, one `coord kv put` each"},
    {0, SLICE_LITERAL("REDIS"),
     "this is a dump of Redis, not a backup of coord: coord cannot read it. Bring its keys over from a running Redis, "
     "one "
     "`coord kv put` each"},
    {0, SLICE_LITERAL("COORDST1"),
     "this is state.bin out of a backup, not the backup: give the whole file that `coord snapshot save` wrote"},
    {0, SLICE_LITERAL("coordsnp"),
     "this is a server's own snapshot out of its data folder, not a backup: make one with `coord snapshot save FILE`"},
    {16, SLICE_LITERAL("\xde\xc0\xef\xbe"),
     "this is a server's store out of its data folder, not a backup: make one with `coord snapshot save FILE`"},
    {0, SLICE_LITERAL("PK\x03\x04"), "this is a zip file, not a backup: unpack it, and give the file that is in it"},
    {257, SLICE_LITERAL("ustar"),
     "this is a tar archive that is not compressed, not a backup as it was saved: if it was unpacked, `gzip` makes it "
     "one "
     "again"},
};

static bool has(struct slice begin, const struct known *one) {
    return begin.size >= one->at + one->bytes.size &&
           memcmp(begin.data + one->at, one->bytes.data, one->bytes.size) == 0;
}

/* The first line, if all of it is text. */
static bool text_line(struct slice begin, struct slice *line) {
    for (size_t i = 0; i < begin.size; i++) {
        unsigned char c = (unsigned char)begin.data[i];
        if (c < ' ' && c != '\n' && c != '\r' && c != '\t') return false;
    }
    while (begin.size && strchr("\n\r\t ", begin.data[0])) begin = slice_make(begin.data + 1, begin.size - 1);
    size_t size = 0;
    while (size < begin.size && begin.data[size] != '\n' && begin.data[size] != '\r') size++;
    *line = utf8_cut(slice_make(begin.data, size), LINE_SHOWN);
    return utf8_valid(*line);
}

int foreign_file(struct slice begin, bool packed, struct fault *fault) {
    struct slice line;
    const char *inside = packed ? "what is compressed in it: " : "";
    if (begin.size == 0)
        return fault_set(fault, CO_CORRUPT, "%s",
                         packed ? "nothing is compressed in this file: it is no backup" : RPC_RESTORE_EMPTY);
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (packed && slice_is(known[i].bytes, "ustar")) continue; /* a backup has that, too */
        if (has(begin, &known[i])) return fault_set(fault, CO_CORRUPT, "%s%s", inside, known[i].what);
    }
    if (text_line(begin, &line)) {
        bool json = line.size && (line.data[0] == '{' || line.data[0] == '[');
        return fault_set(fault, CO_CORRUPT, "%sthis is %s, no backup: it begins \"%.*s\". %s", inside,
                         json ? "JSON" : "text", (int)line.size, line.data,
                         json ? "What `coord kv export` wrote goes back with `coord kv import`"
                              : "If that is an error, saving it failed: take another one");
    }
    return fault_set(
        fault, CO_CORRUPT,
        packed ? "something else is compressed in this file: it is no backup of coord, nor of Consul, etcd or "
                 "ZooKeeper"
               : "this is no backup of coord, nor of Consul, etcd or ZooKeeper: it begins as none of them does");
}

int foreign_state(struct slice begin, struct fault *fault) {
    static const struct slice consul = SLICE_LITERAL("LastIndex"); /* its first record, in MessagePack */
    if (begin.size < 2 + consul.size || memcmp(begin.data + 2, consul.data, consul.size) != 0) return CO_OK;
    return fault_set(
        fault, CO_CORRUPT,
        "this is a backup of Consul, not of coord: coord cannot read its state. Restore it into a Consul, "
        "`consul kv export > keys.json` there, `coord kv import @keys.json` here; services register again by "
        "themselves");
}
