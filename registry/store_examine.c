/* Reading a store's file without LMDB. LMDB trusts its pages: one that makes no sense ends the process (an
 * assertion, a wild pointer), and a wrong key in a branch hides records that are all in their places. Here every
 * page is read by pread, every number in it is checked before it is used, keys must rise over a whole table and lie
 * between their separators, records must be as many as the table says, and their hashes must add up to the kept sum.
 *
 * What is known of LMDB's format (0.9, 64 bits, little-endian; numbers at byte offsets):
 *   page      number 8, pad 2, flags 2 (1 branch, 2 leaf, 4 overflow), then end of pointers 2 and beginning
 * of nodes 2 (overflow: pages 4), then from 16 on the nodes' places, 2 each node      low 2, high 2, flags 2,
 * key size 2, key, data. Leaf: low and high are the data's size; flags 1: the data is the number of its first
 * overflow page; 2: it is a table. Branch: low, high and flags are a page number; the first key is empty
 *   table     pad 4, flags 2, depth 2, pages 8 x 3, records 8, root 8 (all ones: empty)
 *   meta      in pages 0 and 1 from 16 on: magic 4, version 4, address 8, map size 8, table of free pages,
 * table of tables, last page 8, transaction 8 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_in.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define PAGE_HEAD  16
#define NODE_HEAD  8
#define TABLE_SIZE 48
#define DEPTH_MAX  24
#define STOP_PAGES 64 /* so often `stop` is asked */
#define NO_PAGE    UINT64_MAX
enum { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_OVERFLOW = 4, NODE_BIG = 1, NODE_TABLE = 2 };

static uint16_t u16(const char *at) { return (uint16_t)((uint8_t)at[0] | (uint8_t)at[1] << 8); }

struct tree {
    int table; /* STORE_TABLE_META: the table of tables */
    uint64_t records;
    struct buffer last, low; /* the key before; the separator that keys from here on must not lie below */
    bool any;
};

struct exam {
    int fd;
    const struct store_config *config;
    bool (*stop)(void *data);
    void *data;
    struct store_scrubbed *out;
    struct fault *fault;
    uint64_t last_page;
    size_t page_bytes;
    char *pages; /* one per level */
    struct buffer value;
    bool has_sum;
};

static int wrong(struct exam *exam, uint64_t page, const char *what) {
    return fault_set(exam->fault, CO_CORRUPT, "page %" PRIu64 " at offset %" PRIu64 ": %s", page,
                     page * exam->page_bytes, what);
}

static int read_at(struct exam *exam, uint64_t page, char *to, size_t size) {
    size_t got;
    int rv = file_in(exam->fd, page * exam->page_bytes, to, size, &got);
    if (rv != CO_OK) return fault_set(exam->fault, CO_IO, "page %" PRIu64 " cannot be read: %s", page, co_strerror(rv));
    return got < size ? wrong(exam, page, "the file ends before it") : CO_OK;
}

static int read_page(struct exam *exam, uint64_t page, unsigned depth, unsigned flags, char **out) {
    if (page > exam->last_page || page < 2) return wrong(exam, page, "no such page");
    if (exam->stop && exam->out->pages % STOP_PAGES == 0 && exam->stop(exam->data)) return CO_AGAIN;
    exam->out->pages++;
    char *at = *out = exam->pages + depth * exam->page_bytes;
    int error = read_at(exam, page, at, exam->page_bytes);
    if (error) return error;
    if (get_le64(at) != page || (u16(at + 10) & (PAGE_BRANCH | PAGE_LEAF | PAGE_OVERFLOW)) != flags)
        return wrong(exam, page, "not what belongs there");
    size_t lower = u16(at + 12), upper = u16(at + 14);
    if (lower < PAGE_HEAD || lower % 2 || upper < lower || upper > exam->page_bytes)
        return wrong(exam, page, "its header is damaged");
    return CO_OK;
}

/* A large value: its pages follow each other, the first has a header. */
static int read_big(struct exam *exam, uint64_t page, size_t size, struct slice *value) {
    char head[PAGE_HEAD];
    uint64_t pages = (PAGE_HEAD + (uint64_t)size + exam->page_bytes - 1) / exam->page_bytes;
    if (page < 2 || page > exam->last_page || pages > exam->last_page - page + 1)
        return wrong(exam, page, "a large value is not in the file");
    int error = read_at(exam, page, head, sizeof head);
    if (error) return error;
    if (get_le64(head) != page || !(u16(head + 10) & PAGE_OVERFLOW) || get_le32(head + 12) < pages)
        return wrong(exam, page, "a large value's page is damaged");
    exam->out->pages += pages;
    buffer_reset(&exam->value);
    buffer_reserve(&exam->value, PAGE_HEAD + size);
    error = read_at(exam, page, exam->value.data, PAGE_HEAD + size);
    *value = slice_make(exam->value.data + PAGE_HEAD, size);
    return error;
}

static int examine_tree(struct exam *exam, int table, const char *description);

static int table_number(const struct exam *exam, struct slice name) {
    for (size_t i = 0; i < exam->config->table_count; i++)
        if (slice_equal(name, slice_make(exam->config->tables[i].name, strlen(exam->config->tables[i].name))))
            return exam->config->tables[i].number;
    return -1;
}

static int take_record(struct exam *exam, struct tree *tree, uint64_t page, struct slice key, struct slice value) {
    MDB_val raw = {key.size, (void *)(uintptr_t)key.data}, data = {value.size, (void *)(uintptr_t)value.data};
    if (tree->table == STORE_TABLE_META && key.data[0] != STORE_META_BYTE)
        return wrong(exam, page, "a record among the tables");
    if (store_is_sum((uint8_t)tree->table, &raw)) {
        if (value.size != 8) return wrong(exam, page, "the kept sum is damaged");
        exam->out->kept = get_be64(value.data);
        exam->has_sum = true;
        return CO_OK;
    }
    exam->out->records++;
    exam->out->found += store_record_hash((uint8_t)tree->table, &raw, &data);
    return CO_OK;
}

static int take_order(struct exam *exam, struct tree *tree, uint64_t page, struct slice key) {
    if (tree->any && slice_compare(buffer_slice(&tree->last), key) >= 0)
        return wrong(exam, page, "its keys are not in order");
    if (tree->low.size && slice_compare(buffer_slice(&tree->low), key) > 0)
        return wrong(exam, page, "a key lies before its branch");
    tree->any = true;
    tree->records++;
    buffer_reset(&tree->last);
    buffer_append(&tree->last, key.data, key.size);
    return CO_OK;
}

static int take_leaf(struct exam *exam, struct tree *tree, uint64_t page, const char *node, size_t room) {
    unsigned flags = u16(node + 4);
    size_t key_size = u16(node + 6), size = get_le32(node), inside = flags & NODE_BIG ? 8 : size;
    if (key_size == 0 || key_size > STORE_KEY_MAX || NODE_HEAD + key_size + inside > room || flags > NODE_TABLE)
        return wrong(exam, page, "a record is damaged");
    struct slice key = slice_make(node + NODE_HEAD, key_size), value = slice_make(node + NODE_HEAD + key_size, size);
    int error = take_order(exam, tree, page, key);
    if (error) return error;
    if (flags & NODE_TABLE) {
        if (size != TABLE_SIZE || tree->table != STORE_TABLE_META)
            return wrong(exam, page, "a table that should not be there");
        int table = table_number(exam, key);
        if (table >= 0) return examine_tree(exam, table, value.data);
        if (get_le64(value.data + 40) == NO_PAGE) return CO_OK; /* a newer version was here, and left nothing in it */
        return fault_set(exam->fault, CO_UNSUPPORTED, "a table \"%.*s\" of a newer version", (int)key.size, key.data);
    }
    if (flags & NODE_BIG) error = read_big(exam, get_le64(value.data), size, &value);
    return error ? error : take_record(exam, tree, page, key, value);
}

static int examine_page(struct exam *exam, struct tree *tree, uint64_t page, unsigned depth, unsigned levels);

static int take_branch(struct exam *exam, struct tree *tree, uint64_t page, const char *node, size_t room, bool first,
                       unsigned depth, unsigned levels) {
    size_t key_size = u16(node + 6);
    if (NODE_HEAD + key_size > room || key_size > STORE_KEY_MAX || (!first && key_size == 0))
        return wrong(exam, page, "a branch is damaged");
    struct slice key = slice_make(node + NODE_HEAD, key_size);
    if (!first) {
        if (tree->any && slice_compare(buffer_slice(&tree->last), key) >= 0)
            return wrong(exam, page, "a branch lies before its records");
        buffer_reset(&tree->low);
        buffer_append(&tree->low, key.data, key.size);
    }
    return examine_page(exam, tree, get_le32(node) | (uint64_t)u16(node + 4) << 32, depth + 1, levels);
}

static int examine_page(struct exam *exam, struct tree *tree, uint64_t page, unsigned depth, unsigned levels) {
    bool leaf = depth + 1 == levels;
    char *at = NULL;
    /* Tables lie below leaves of the table of tables: their levels come after its own. */
    int error = read_page(exam, page, tree->table == STORE_TABLE_META ? depth : DEPTH_MAX + depth,
                          leaf ? PAGE_LEAF : PAGE_BRANCH, &at);
    size_t count = error ? 0 : (size_t)(u16(at + 12) - PAGE_HEAD) / 2;
    if (!error && count == 0) return wrong(exam, page, "it is empty");
    for (size_t i = 0; i < count && !error; i++) {
        size_t place = u16(at + PAGE_HEAD + 2 * i);
        if (place < u16(at + 14) || place + NODE_HEAD > exam->page_bytes)
            return wrong(exam, page, "a place in it is damaged");
        if (leaf) error = take_leaf(exam, tree, page, at + place, exam->page_bytes - place);
        else error = take_branch(exam, tree, page, at + place, exam->page_bytes - place, i == 0, depth, levels);
    }
    return error;
}

static int examine_tree(struct exam *exam, int table, const char *description) {
    unsigned depth = u16(description + 6);
    uint64_t records = get_le64(description + 32), root = get_le64(description + 40);
    struct tree tree = {.table = table};
    int error = CO_OK;
    if (root != NO_PAGE)
        error = depth == 0 || depth > DEPTH_MAX ? wrong(exam, root, "a table's depth is damaged")
                                                : examine_page(exam, &tree, root, 0, depth);
    if (!error && tree.records != records) error = wrong(exam, root, "a table's records are not as many as it says");
    buffer_free(&tree.last);
    buffer_free(&tree.low);
    return error;
}

/* The description of the table of tables as of `txnid`. */
static int find_meta(struct exam *exam, uint64_t txnid, char *description) {
    char meta[2][PAGE_HEAD + 24 + 2 * TABLE_SIZE + 16];
    int best = -1;
    for (int i = 0; i < 2; i++) {
        int error = read_at(exam, (uint64_t)i, meta[i], sizeof meta[i]);
        if (error) return error;
        const char *at = meta[i] + PAGE_HEAD;
        uint64_t id = get_le64(at + 128);
        if (get_le32(at) != 0xBEEFC0DE || (txnid && id != txnid)) continue;
        if (best < 0 || id > get_le64(meta[best] + PAGE_HEAD + 128)) best = i;
    }
    if (best < 0) return txnid ? CO_AGAIN : wrong(exam, 0, "no meta page makes sense");
    memcpy(description, meta[best] + PAGE_HEAD + 24 + TABLE_SIZE, TABLE_SIZE);
    exam->last_page = get_le64(meta[best] + PAGE_HEAD + 24 + 2 * TABLE_SIZE);
    return CO_OK;
}

int store_examine_file(int fd, const struct store_config *config, uint64_t txnid, bool (*stop)(void *data), void *data,
                       struct store_scrubbed *out, struct fault *fault) {
    struct exam exam = {.fd = fd,
                        .config = config,
                        .stop = stop,
                        .data = data,
                        .out = out,
                        .fault = fault,
                        .page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    char description[TABLE_SIZE];
    *out = (struct store_scrubbed){0};
    exam.pages = mem_alloc(2 * DEPTH_MAX * exam.page_bytes);
    int error = find_meta(&exam, txnid, description);
    if (!error) error = examine_tree(&exam, STORE_TABLE_META, description);
    if (!error && !exam.has_sum && out->records > 0) error = wrong(&exam, 0, "no sum was kept");
    if (!error && out->kept != out->found)
        error = fault_set(fault, CO_CORRUPT, "the records' sum is %016" PRIx64 ", %016" PRIx64 " was kept", out->found,
                          out->kept);
    free(exam.pages);
    buffer_free(&exam.value);
    return error;
}

#define ATTEMPTS 50 /* a meta page is written again two commits later */

int store_examine(struct store *store, bool (*stop)(void *data), void *data, struct store_scrubbed *out,
                  struct fault *fault) {
    struct store_reader *reader = store_long_reader_new(store);
    int error = CO_AGAIN;
    for (int i = 0; i < ATTEMPTS && error == CO_AGAIN && !(stop && stop(data)); i++) {
        struct store_txn *txn = store_read(reader);
        error = store_examine_file(txn->file->fd, &store->config, mdb_txn_id(txn->mdb), stop, data, out, fault);
        store_read_done(reader);
    }
    store_reader_free(reader);
    return error;
}

bool store_damaged(struct store *store) {
    pthread_mutex_lock(&store->lock); /* the file may be switched */
    bool damaged = store->file->damaged;
    pthread_mutex_unlock(&store->lock);
    return damaged;
}
