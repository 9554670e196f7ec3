/* Reading a store's file without LMDB. LMDB trusts its pages: one that makes no sense ends the process (an assertion, a
 * wild pointer), and a wrong key in a branch hides records that are all in their places. Here every page is read by
 * pread, and every number in it is checked before it is used: each page belongs to one place, of a tree or of the list
 * of free pages; nodes fill their pages; keys rise over a whole table and lie between their separators; records and
 * pages are as many as the table says; each record has its checksum, and all of them add up to the sum that was kept.
 * So all bytes by which LMDB decides are right; it does not look at the others.
 *
 * The parts of LMDB's format that are used here (0.9, 64 bits, little-endian; each number with its size in bytes):
 *   page      number 8, pad 2, flags 2 (1 branch, 2 leaf, 4 overflow, 8 meta), then end of pointers 2 and beginning of
 *             nodes 2 (overflow: pages 4), then from 16 on the nodes' places, 2 each
 *   node      low 2, high 2, flags 2, key size 2, key, data; to an even size. Leaf: low and high are the data's size;
 *             flags 1: the data is the number of its first overflow page; 2: it is a table. Branch: low, high and
 *             flags are a page number; the first key is not looked at
 *   table     pad 4, flags 2, depth 2, branch pages, leaf pages, overflow pages, records, root 8 each (root all ones:
 *             empty)
 *   meta      in pages 0 and 1 from 16 on: magic 4, version 4, address 8, map size 8, table of free pages, table of
 *             tables, last page 8, transaction 8. The pad of the first table is the page size. Transaction n is in
 *             page n % 2
 *   free      transaction 8 -> count 8, as many page numbers, falling: freed by it; there may be room behind them */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_in.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define PAGE_HEAD  16
#define NODE_HEAD  8
#define TABLE_SIZE 48
#define META_SIZE  (PAGE_HEAD + 24 + 2 * TABLE_SIZE + 16)
#define DEPTH_MAX  24
#define STOP_PAGES 64 /* `stop` is asked once for so many pages */
#define NO_PAGE    UINT64_MAX
enum { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_OVERFLOW = 4, PAGE_META = 8, NODE_BIG = 1, NODE_TABLE = 2 };
enum { FREE_FLAGS = 8, FREE_FLAGS_OURS = 0x4000 }; /* MDB_INTEGERKEY; MDB_NOSUBDIR, with which it was made */
enum { TABLE_FREE = -1, TABLE_UNKNOWN = -2 };      /* besides the store's own numbers */

static uint16_t u16(const char *at) { return (uint16_t)((uint8_t)at[0] | (uint8_t)at[1] << 8); }

struct tree {
    int table; /* STORE_TABLE_META: the table of tables */
    unsigned levels;
    uint64_t records, branches, leaves, overflows;
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
    uint64_t last_page, txnid;
    size_t page_bytes;
    char *pages;      /* one per level */
    uint8_t *claimed; /* a bit for each page that has a place */
    struct buffer value;
    bool has_sum;
    char unknown[40]; /* a table of a newer version */
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

static int claim(struct exam *exam, uint64_t page, uint64_t count) {
    if (page < 2 || page > exam->last_page || count > exam->last_page - page + 1)
        return wrong(exam, page, "no such page");
    for (; count > 0; page++, count--) {
        uint8_t bit = (uint8_t)(1u << page % 8);
        if (exam->claimed[page / 8] & bit) return wrong(exam, page, "it is in two places");
        exam->claimed[page / 8] |= bit;
    }
    return CO_OK;
}

static int read_page(struct exam *exam, uint64_t page, unsigned depth, unsigned flags, char **out) {
    if (exam->stop && exam->out->pages % STOP_PAGES == 0 && exam->stop(exam->data)) return CO_AGAIN;
    int error = claim(exam, page, 1);
    if (error) return error;
    exam->out->pages++;
    char *at = *out = exam->pages + depth * exam->page_bytes;
    error = read_at(exam, page, at, exam->page_bytes);
    if (error) return error;
    if (get_le64(at) != page || u16(at + 10) != flags) return wrong(exam, page, "not what belongs there");
    size_t lower = u16(at + 12), upper = u16(at + 14);
    if (lower < PAGE_HEAD || lower % 2 || upper < lower || upper > exam->page_bytes)
        return wrong(exam, page, "its header is damaged");
    return CO_OK;
}

/* A large value: its pages follow each other, the first has a header. */
static int read_big(struct exam *exam, struct tree *tree, uint64_t page, size_t size, struct slice *value) {
    char head[PAGE_HEAD];
    uint64_t pages = (PAGE_HEAD + (uint64_t)size + exam->page_bytes - 1) / exam->page_bytes;
    if (page < 2 || page > exam->last_page) return wrong(exam, page, "a large value is not in the file");
    int error = read_at(exam, page, head, sizeof head);
    if (error) return error;
    uint64_t all = get_le32(head + 12); /* a value that replaced a larger one has more pages */
    if (get_le64(head) != page || u16(head + 10) != PAGE_OVERFLOW || all < pages)
        return wrong(exam, page, "a large value's page is damaged");
    error = claim(exam, page, all);
    if (error) return error;
    exam->out->pages += pages;
    tree->overflows += all;
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
    return TABLE_UNKNOWN;
}

/* -- leaves ------------------------------------------------------------------------------------------------------- */

static int take_free(struct exam *exam, uint64_t page, struct slice key, struct slice list) {
    uint64_t room = list.size / 8, count = list.size < 8 ? UINT64_MAX : get_le64(list.data), before = UINT64_MAX;
    if (get_le64(key.data) > exam->txnid || list.size % 8 || count >= room)
        return wrong(exam, page, "a list of free pages is damaged");
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t freed = get_le64(list.data + 8 * i);
        if (freed >= before) return wrong(exam, page, "a list of free pages is not in order");
        int error = claim(exam, freed, 1);
        if (error) return error;
        before = freed;
    }
    return CO_OK;
}

static int take_record(struct exam *exam, struct tree *tree, uint64_t page, struct slice key, struct slice data) {
    MDB_val raw = {key.size, (void *)(uintptr_t)key.data}, all = {data.size, (void *)(uintptr_t)data.data};
    struct slice value;
    uint64_t hash;
    if (tree->table == TABLE_FREE) return take_free(exam, page, key, data);
    if (tree->table == TABLE_UNKNOWN) return CO_OK; /* the checksum includes the table's number, which is not known */
    if (tree->table == STORE_TABLE_META && key.data[0] != STORE_META_BYTE)
        return wrong(exam, page, "a record among the tables");
    if (!store_record_read((uint8_t)tree->table, &raw, &all, &value, &hash))
        return wrong(exam, page, "a record's checksum does not match");
    if (store_is_sum((uint8_t)tree->table, &raw)) {
        if (value.size != 8) return wrong(exam, page, "the kept sum is damaged");
        exam->out->kept = get_be64(value.data);
        exam->has_sum = true;
        return CO_OK;
    }
    exam->out->records++;
    exam->out->found += hash;
    return CO_OK;
}

static int take_table(struct exam *exam, struct tree *tree, uint64_t page, struct slice name, struct slice data) {
    if (data.size != TABLE_SIZE || tree->table != STORE_TABLE_META)
        return wrong(exam, page, "a table that should not be there");
    int table = table_number(exam, name);
    bool empty = get_le64(data.data + 40) == NO_PAGE; /* a newer version may have made it and left it empty */
    if (table == TABLE_UNKNOWN && !empty)
        snprintf(exam->unknown, sizeof exam->unknown, "%.*s", (int)name.size, name.data);
    return examine_tree(exam, table, data.data);
}

/* Makes keys comparable by memcmp: those of the tree of free pages are numbers. `room`: 8 bytes. */
static bool ordered_key(const struct tree *tree, struct slice *key, char *room) {
    if (tree->table != TABLE_FREE) return true;
    if (key->size != 8) return false;
    put_be64(room, get_le64(key->data));
    *key = slice_make(room, 8);
    return true;
}

static int take_order(struct exam *exam, struct tree *tree, uint64_t page, struct slice key) {
    char room[8];
    if (!ordered_key(tree, &key, room)) return wrong(exam, page, "a record is damaged");
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

/* The size of a node; 0: it is not within its page. */
static size_t node_size(const char *node, size_t room, bool leaf) {
    if (room < NODE_HEAD) return 0;
    size_t flags = u16(node + 4), key = u16(node + 6), size = NODE_HEAD + key;
    if (leaf) size += flags & NODE_BIG ? 8 : get_le32(node);
    bool sane = key <= STORE_KEY_MAX && (!leaf || (key > 0 && flags <= NODE_TABLE));
    return sane && size <= room ? size + size % 2 : 0;
}

static int take_leaf(struct exam *exam, struct tree *tree, uint64_t page, const char *node) {
    unsigned flags = u16(node + 4);
    size_t key_size = u16(node + 6), size = get_le32(node);
    struct slice key = slice_make(node + NODE_HEAD, key_size), data = slice_make(node + NODE_HEAD + key_size, size);
    int error = take_order(exam, tree, page, key);
    if (error) return error;
    if (flags & NODE_TABLE) return take_table(exam, tree, page, key, data);
    if (flags & NODE_BIG) error = read_big(exam, tree, get_le64(data.data), size, &data);
    return error ? error : take_record(exam, tree, page, key, data);
}

/* -- trees -------------------------------------------------------------------------------------------------------- */

static int examine_page(struct exam *exam, struct tree *tree, uint64_t page, unsigned depth);

static int take_branch(struct exam *exam, struct tree *tree, uint64_t page, const char *node, bool first,
                       unsigned depth) {
    struct slice key = slice_make(node + NODE_HEAD, u16(node + 6));
    char room[8];
    if (!first) {
        if (key.size == 0 || !ordered_key(tree, &key, room)) return wrong(exam, page, "a branch is damaged");
        if (tree->any && slice_compare(buffer_slice(&tree->last), key) >= 0)
            return wrong(exam, page, "a branch lies before its records");
        buffer_reset(&tree->low);
        buffer_append(&tree->low, key.data, key.size);
    }
    return examine_page(exam, tree, get_le32(node) | (uint64_t)u16(node + 4) << 32, depth + 1);
}

static int examine_page(struct exam *exam, struct tree *tree, uint64_t page, unsigned depth) {
    bool leaf = depth + 1 == tree->levels;
    char *at = NULL;
    /* Tables lie below leaves of the table of tables: their levels come after its own. */
    int error = read_page(exam, page, tree->table == STORE_TABLE_META ? depth : DEPTH_MAX + depth,
                          leaf ? PAGE_LEAF : PAGE_BRANCH, &at);
    if (error) return error;
    size_t count = (size_t)(u16(at + 12) - PAGE_HEAD) / 2, upper = u16(at + 14), filled = 0;
    size_t least = leaf || tree->table == TABLE_FREE ? 1 : 2;
    if (count < least) return wrong(exam, page, "it is empty");
    *(leaf ? &tree->leaves : &tree->branches) += 1;
    for (size_t i = 0; i < count && !error; i++) {
        size_t place = u16(at + PAGE_HEAD + 2 * i), size = 0;
        if (place >= upper && place <= exam->page_bytes && place % 2 == 0)
            size = node_size(at + place, exam->page_bytes - place, leaf);
        if (size == 0) return wrong(exam, page, "a place in it is damaged");
        filled += size;
        if (leaf) error = take_leaf(exam, tree, page, at + place);
        else error = take_branch(exam, tree, page, at + place, i == 0, depth);
    }
    if (!error && filled != exam->page_bytes - upper) error = wrong(exam, page, "it is not as full as it says");
    return error;
}

static int examine_tree(struct exam *exam, int table, const char *description) {
    unsigned flags = u16(description + 4);
    uint64_t root = get_le64(description + 40);
    struct tree tree = {.table = table, .levels = u16(description + 6)};
    int error = CO_OK;
    if (table == TABLE_FREE ? (flags & ~FREE_FLAGS_OURS) != FREE_FLAGS : flags || get_le32(description))
        error = wrong(exam, root, "a table's flags are damaged");
    else if (tree.levels > DEPTH_MAX || (tree.levels == 0) != (root == NO_PAGE))
        error = wrong(exam, root, "a table's depth is damaged");
    else if (root != NO_PAGE) error = examine_page(exam, &tree, root, 0);
    if (!error && tree.records != get_le64(description + 32))
        error = wrong(exam, root, "a table's records are not as many as it says");
    if (!error && (tree.branches != get_le64(description + 8) || tree.leaves != get_le64(description + 16) ||
                   tree.overflows != get_le64(description + 24)))
        error = wrong(exam, root, "a table's pages are not as many as it says");
    buffer_free(&tree.last);
    buffer_free(&tree.low);
    return error;
}

/* -- the file ----------------------------------------------------------------------------------------------------- */

static uint64_t meta_txnid(const char *page) { return get_le64(page + META_SIZE - 8); }

static bool is_meta(const char *page, int number) {
    const char *at = page + PAGE_HEAD;
    return get_le64(page) == (uint64_t)number && u16(page + 10) == PAGE_META && get_le32(at) == 0xBEEFC0DE &&
           get_le32(at + 4) == 1;
}

static int read_metas(struct exam *exam, char metas[2][META_SIZE]) {
    for (int i = 0; i < 2; i++) {
        int error = read_at(exam, (uint64_t)i, metas[i], META_SIZE);
        if (error) return error;
        size_t bytes = get_le32(metas[i] + PAGE_HEAD + 24);
        if (!is_meta(metas[i], i) || bytes < 512 || bytes > 32768 || bytes & (bytes - 1) ||
            (i && bytes != exam->page_bytes))
            return wrong(exam, (uint64_t)i, "a meta page is damaged");
        exam->page_bytes = bytes;
    }
    return CO_OK;
}

/* The meta page as of `txnid`; 0: of the last one. With 0, nobody writes, and the other meta page is that of the
 * transaction before. */
static int choose_meta(struct exam *exam, char metas[2][META_SIZE], uint64_t txnid, const char **chosen) {
    uint64_t ids[2] = {meta_txnid(metas[0]), meta_txnid(metas[1])};
    int newest = ids[0] < ids[1];
    if (txnid) {
        if (txnid != ids[txnid % 2]) return CO_AGAIN;
        newest = txnid % 2;
    } else if (ids[newest] && (ids[newest] % 2 != (uint64_t)newest || ids[!newest] != ids[newest] - 1)) {
        return wrong(exam, (uint64_t)newest, "a meta page's transaction is damaged");
    }
    exam->txnid = ids[newest];
    *chosen = metas[newest] + PAGE_HEAD;
    return CO_OK;
}

static int check_size(struct exam *exam, const char *meta) {
    struct stat info;
    uint64_t last = get_le64(meta + 24 + 2 * TABLE_SIZE);
    if (fstat(exam->fd, &info) != 0) return fault_set(exam->fault, CO_IO, "it cannot be looked at");
    if (last < 1 || last >= (uint64_t)info.st_size / exam->page_bytes)
        return fault_set(exam->fault, CO_CORRUPT, "the file ends at offset %" PRIu64 ", before page %" PRIu64,
                         (uint64_t)info.st_size, last);
    exam->last_page = last;
    return CO_OK;
}

static int examine_all(struct exam *exam, uint64_t txnid) {
    char metas[2][META_SIZE];
    const char *meta = NULL;
    struct store_scrubbed *out = exam->out;
    int error = read_metas(exam, metas);
    if (!error) error = choose_meta(exam, metas, txnid, &meta);
    if (!error) error = check_size(exam, meta);
    if (error) return error;
    exam->pages = mem_alloc(2 * DEPTH_MAX * exam->page_bytes);
    exam->claimed = mem_zalloc(exam->last_page / 8 + 1);
    error = examine_tree(exam, STORE_TABLE_META, meta + 24 + TABLE_SIZE);
    if (!error) error = examine_tree(exam, TABLE_FREE, meta + 24);
    if (error) return error;
    if (exam->unknown[0])
        return fault_set(exam->fault, CO_UNSUPPORTED, "a table \"%s\" of a newer version", exam->unknown);
    if (!exam->has_sum && out->records > 0) return wrong(exam, 0, "no sum was kept");
    if (out->kept == out->found) return CO_OK;
    return fault_set(exam->fault, CO_CORRUPT, "the records' sum is %016" PRIx64 ", %016" PRIx64 " was kept", out->found,
                     out->kept);
}

int store_examine_file(int fd, const struct store_config *config, uint64_t txnid, bool (*stop)(void *data), void *data,
                       struct store_scrubbed *out, struct fault *fault) {
    struct exam exam = {.fd = fd, .config = config, .stop = stop, .data = data, .out = out, .fault = fault};
    *out = (struct store_scrubbed){0};
    int error = examine_all(&exam, txnid);
    free(exam.pages);
    free(exam.claimed);
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
