/* Copies of other regions' catalogs, as replicated state: every server of this region answers from them, also while no
 * other region can be reached, and right after a restart.
 *
 * The rule: readers see a region's catalog as it was at one index, never a mixture of two. That index (the copy's
 * *position*) only rises, unless the region was restored from a backup or founded anew. Its cluster id and `restored`
 * tell that; then the copy is read anew.
 *
 * A small change is one command (COPY_UPDATE). It names the position that the copy must have before (`from`) and has
 * afterwards (`to`), and is refused when `from` does not fit. So a command that comes twice, late, or from a former
 * leader, does nothing. A large change is *staged*, so that no entry takes long. COPY_STAGE puts values beside the
 * present ones, which readers do not see yet. COPY_COMMIT, which is small, makes all of them the present ones at once.
 * COPY_TIDY then removes the superseded values, some rows in each entry. Readers compare a row's stage with the
 * region's. A stage is named by the index of the entry that began it, which no other stage ever has; its parts are
 * counted. COPY_TIDY gives up a stage that is not committed. COPY_FORGET hides a copy and removes it in steps: the
 * leader proposes it until the answer is yes. A late command of a former leader may bring back the copy of a region
 * that is no longer on record: the leader compares now and then (query_copies), and forgets it again. */
#ifndef COORD_MULTI_DC_COPY_H
#define COORD_MULTI_DC_COPY_H

#include "multi-dc/copy.pb-c.h"
#include "registry/catalog_changes.h"

#define COPY_REGION_MAX 64
#define COPY_ROWS_MOST  256                 /* entries and removals in one command; rows that one step passes */
#define COPY_BYTES_MOST ((size_t)512 << 10) /* bytes of a command's entries and names */

enum copy_command {
    COPY_UPDATE = 208,
    COPY_STAGE = 209,
    COPY_COMMIT = 210,
    COPY_TIDY = 211,
    COPY_FORGET = 212,
};
enum copy_space {
    SPACE_COPY_SERVICE = 112,  /* a service's name in any case: its instances in any region */
    SPACE_COPY_SERVICES = 113, /* name "": which services there are, in which regions with which tags */
    SPACE_COPY = 114,          /* name "": the copies, and their positions */
    SPACE_COPY_FLIP = 115,     /* name "": a whole copy changed at once */
};

/* Results: yes; result.index of the COPY_STAGE that begins a stage is its id. Refused: CO_CONFLICT (from does not fit;
 * another state than the command needs; no such stage or part), CO_INVALID (a region's name, an entry that does not
 * decode), CO_TOOLARGE. */
extern const struct module copy_module;

/* Instances of a service in other regions: GlobalServiceRequest -> GlobalServiceResult. The entries are sorted by node
 * and id, complete (catalog_unstrip), and have the indexes of their region. */
extern const struct query_type query_global_service;
extern const struct query_type query_global_services; /* GlobalServicesRequest -> GlobalServicesResult */
extern const struct query_type query_copies;          /* CopiesRequest -> CopiesResult */
extern const struct query_type query_copy;            /* CopyRequest -> CopyResult; nobody waits for it */

/* GlobalNodeRequest -> GlobalNodeResult: a node of another region that has an instance of a service. Copies have no
 * other nodes, and no list of nodes: the query searches the first COPY_NODE_SERVICES_MOST services of the region. It
 * wakes when services come or go there, or when the whole copy changes, but not for changes of the node alone. */
extern const struct query_type query_global_node;
#define COPY_NODE_SERVICES_MOST 4096

/* Keeps the instances that the token may read; for a service that it may not read, the result is that of one that is
 * nowhere. */
void copy_show_regions(struct access_check *check, const char *service, Pb__GlobalServiceResult *records,
                       struct query_result *result);

/* Does the copy of any region have the service? Copies that readers do not see count too. Costs some look-ups for each
 * region. */
bool copy_service_anywhere(struct store_txn *txn, struct slice service);
/* Instances of a service: all, or those with all of these tags. */
struct copy_wish {
    struct slice service;
    char *const *tags;
    size_t n_tags;
};
/* Do readers see a healthy instance (passing or warning) in that copy? CO_OK; CO_NOTFOUND: none, and *there (may be
 * NULL) says whether there are unhealthy ones; CO_CORRUPT. */
int copy_service_healthy(struct store_txn *txn, const char *region, const struct copy_wish *wish, struct arena *arena,
                         bool *there);
/* The same for any copy, except those of the regions `without`. */
int copy_service_healthy_anywhere(struct store_txn *txn, const struct copy_wish *wish, char *const *without,
                                  size_t n_without, struct arena *arena);
/* May a region have this name? It is not empty, and has at most COPY_REGION_MAX bytes and no NUL. */
bool copy_region_good(const char *region);
/* Are both positions of the same cluster, without a restore or refounding in between? NULL: no position. */
bool copy_same_life(const Pb__CatalogAt *a, const Pb__CatalogAt *b);
/* Are both the same position? */
bool copy_same_at(const Pb__CatalogAt *a, const Pb__CatalogAt *b);

#endif
