/* Copies of other regions' catalogs, as replicated state: every server of this region answers from them, also while no
 * other region can be reached, and right after a restart.
 *
 * The rule: what readers see of a region is its catalog as it was at one index, never a mixture of two. That index (its
 * *position*) rises only, unless the region was restored from a backup or founded anew, which its cluster id and
 * `restored` tell; then it is read anew.
 *
 * A change is one command when it is small (COPY_UPDATE). It says what the copy must equal before (`from`) and what it
 * equals afterwards (`to`), and is refused when the first does not fit: a command that comes twice, late, or of a leader
 * that is none any more, does nothing.
 * A large one is *staged*, so that no entry takes long: COPY_STAGE puts values beside the present ones, which nobody sees;
 * COPY_COMMIT, which is small, makes all of them the present at once; COPY_TIDY then makes one value of two, some rows an
 * entry. Readers compare a row's stage with the region's. A stage is named by the index of the entry that began it,
 * which no other ever has; its parts are counted. One that is not committed is given up by COPY_TIDY.
 * COPY_FORGET hides a copy and removes it in steps: who wants it gone proposes it until the answer is yes. A copy of
 * a region that nobody knows any more may come back by a late command of a former leader: the leader compares now
 * and then (query_copies), and forgets it again. */
#ifndef COORD_MULTI_DC_COPY_H
#define COORD_MULTI_DC_COPY_H

#include "multi-dc/copy.pb-c.h"
#include "registry/catalog_changes.h"

#define COPY_REGION_MAX 64
#define COPY_ROWS_MOST  256                 /* entries and removals in one command; rows that one step passes */
#define COPY_BYTES_MOST ((size_t)512 << 10) /* of a command's entries and names */

enum copy_command {
    COPY_UPDATE = 208,
    COPY_STAGE = 209,
    COPY_COMMIT = 210,
    COPY_TIDY = 211,
    COPY_FORGET = 212,
};
enum copy_space {
    SPACE_COPY_SERVICE = 112,  /* a service's name, without regard to case: its instances in any region */
    SPACE_COPY_SERVICES = 113, /* name "": which services there are, in which regions with which tags */
    SPACE_COPY = 114,          /* name "": the copies, and their positions */
    SPACE_COPY_FLIP = 115,     /* name "": all of some copy changed at once */
};

/* Results: yes; result.index of the COPY_STAGE that begins a stage is its id. Refused: CO_CONFLICT (from does not fit;
 * another state than the command needs; no such stage or part), CO_INVALID (a region's name, an entry that does not
 * decode), CO_TOOLARGE. */
extern const struct module copy_module;

/* Instances of a service in other regions: GlobalServiceRequest -> GlobalServiceResult. Entries by node, id; complete
 * (catalog_unstrip), with indexes of their region. */
extern const struct query_type query_global_service;
extern const struct query_type query_global_services; /* GlobalServicesRequest -> GlobalServicesResult */
extern const struct query_type query_copies;          /* CopiesRequest -> CopiesResult */
extern const struct query_type query_copy;            /* CopyRequest -> CopyResult; not waited for */

/* GlobalNodeRequest -> GlobalNodeResult: a node of another region that has an instance of a service. Copies have no others,
 * and no list of them: it is looked for among the first COPY_NODE_SERVICES_MOST services of the region. It wakes when
 * services come or go there, or all of the copy changes, not for what is changed of the node alone. */
extern const struct query_type query_global_node;
#define COPY_NODE_SERVICES_MOST 4096

/* Has the copy of any region the service? Also one that readers do not see yet, or any more. Some look-ups for each region. */
bool copy_service_anywhere(struct store_txn *txn, struct slice service);
/* Instances of a service, all of them or those with all of these tags. */
struct copy_wish {
    struct slice service;
    char *const *tags;
    size_t n_tags;
};
/* Do readers see a healthy one (passing or warning) in that copy? CO_OK; CO_NOTFOUND: none, *there (may be NULL): others.
 * CO_CORRUPT. */
int copy_service_healthy(struct store_txn *txn, const char *region, const struct copy_wish *wish, struct arena *arena,
                         bool *there);
/* The same in any copy, but of the regions `without`. */
int copy_service_healthy_anywhere(struct store_txn *txn, const struct copy_wish *wish, char *const *without,
                                  size_t n_without, struct arena *arena);
/* Is it a name that a region can have here? Not empty, at most COPY_REGION_MAX bytes, no NUL. */
bool copy_region_good(const char *region);
/* Are both of one life of one cluster? NULL: of none. */
bool copy_same_life(const Pb__CatalogAt *a, const Pb__CatalogAt *b);
/* The same moment? */
bool copy_same_at(const Pb__CatalogAt *a, const Pb__CatalogAt *b);

#endif
