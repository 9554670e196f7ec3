/* Failover: a service without healthy instances here is answered from another region, and comes home by itself.
 *
 * Healthy is what DNS gives out: passing or warning, or held by self-preservation. While there is none here, the answer
 * has the instances of the first target with healthy ones: the operator's order for the service names the targets
 * (FAILOVER_SET), else it is the nearest region (multi-dc/global.h). Without any the answer has this region's
 * instances.
 *
 * A healthy home is not left. In one case this region answers with another's instances although it has healthy ones of
 * its own: the service lost its last healthy instance here, another region answered when it became healthy again, it
 * has not been healthy for coord.failover_return since then, and at each moment since then another region could answer.
 * This only delays coming home, so that a service whose checks flap does not go back and forth.
 *
 * Entries note all of this, and decide it from the state at their end (registry/catalog_turns.h):
 *
 *   away_index the entry that took the last healthy instance away, of a service that another region has or whose order
 *               names others. Other regions answer at once.
 *   back_index the entry that brought a healthy instance again, if another region answered then; else that entry
 *               removes the note, and the service is at home. While back_index stands another region answers: the
 *               service waits to come home.
 *
 * The entry that leaves no other region to answer removes the note of a service that waits. Such an entry takes the
 * last healthy instance of the last other region away (also of another service that the order names, or a tag that the
 * order asks for), replaces or forgets a copy (COPY_COMMIT, COPY_FORGET), or changes the order. When the service loses
 * its last healthy instance here again, back_index is removed. When back_index has stood for coord.failover_return the
 * leader takes both away (multi-dc/returning.h, FAILOVER_HOME).
 *
 * So a service comes home at once when it becomes healthy here for the first time since it appeared, or since another
 * region's copy or an order came for it. A service that was deregistered and is registered anew is the same service.
 *
 * An order may name this region. Another service of this region answers then, but no service waits because of it: if
 * only that one could answer the service comes home at once. The service itself in this region is home. The state does
 * not know this region's name. So when an order that names the service in a region without a copy is replaced while the
 * service waits, this region may have answered, and the service comes home.
 *
 * The same rule damps another region whose checks flap meanwhile: while the service is away, the entry that takes the
 * last healthy instance of a region's copy away notes a rest of that region (`rests`, each with an away_index, and a
 * back_index, which a command of the leader notes). A region at rest is passed over, for orders and for the nearest,
 * unless no other region, nor this one, has healthy instances; and no service waits because of it. Its rest ends by
 * FAILOVER_HOME with the region's name, or with the whole note when the service comes home. The rest of a region whose
 * copy is gone, or whose copy no longer has the service, ends as if the service were healthy there. A large change of a
 * copy (COPY_COMMIT) notes no rest and ends none; neither does another service that an order names.
 *
 * Failover state is kept only for services that another region has too, or whose order names others; the leader removes
 * it when that ends. After a change of leader the time counts anew.
 *
 * Cost: an entry reads instances only when it turns an instance here, or one in a copy of a service on record, between
 * healthy and not. It reads all instances here only when the service became healthy or lost its last healthy instance,
 * or may have; else one of them. It reads those of other regions only when the service becomes healthy, or when a
 * service that waits may have lost the last one there; each time up to the first healthy one. COPY_COMMIT and
 * COPY_FORGET read all records, and the other regions' instances for services that wait. A module of the state
 * machine. */
#ifndef COORD_MULTI_DC_FAILOVER_H
#define COORD_MULTI_DC_FAILOVER_H

#include "multi-dc/failover.pb-c.h"
#include "multi-dc/global.h"

#define FAILOVER_RETURN_MS    10000
#define FAILOVER_SERVICES_MAX 10000 /* records; beyond that number services come home at once, and orders are refused */
#define FAILOVER_TARGETS_MAX  16
#define FAILOVER_TAGS_MAX     16  /* tags of a target */
#define FAILOVER_NAME_MAX     255 /* bytes of a service's name, and of a tag; longer ones are answered from here */

enum failover_command { FAILOVER_SET = 217, FAILOVER_HOME = 218 };
enum failover_space { SPACE_FAILOVER = 117 }; /* a service's name in any case; "": any service */

/* Results: yes. Refused: CO_INVALID (a name, too many of something), CO_TOOLARGE (FAILOVER_SERVICES_MAX);
 * FAILOVER_HOME: CO_CONFLICT. */
extern const struct module failover_module;
extern const struct query_type query_failovers; /* FailoversRequest -> FailoversResult: all records */
extern const struct query_type query_failover;  /* FailoverRequest -> FailoverResult; found=false: the service has no
                                                 * record */
/* AnswerRequest -> AnswerResult. A service waits to come home as a whole. A question for a tag, or for passing
 * instances only, may be answered from elsewhere when this region has no such instance. Wakes when the service here or
 * elsewhere, one of `others`, its order, or the regions change. The caller knows from query_failover which `others` the
 * order names; a change of them wakes this query too. */
extern const struct query_type query_answer;
extern const struct query_type
    query_explain; /* AnswerRequest -> ExplainResult: how that answer comes about; nobody waits for it */

/* -- inside ------------------------------------------------------------------------------------------------------- */
/* CO_NOTFOUND: the service has no record. */
int failover_record(struct store_txn *txn, struct slice service, struct arena *arena, Pb__Failover **record);
/* Takes the targets out that name services which the token may not read. */
void failover_show(struct access_check *check, Pb__Failover *record);
/* Could another region or service answer for the service, by its order, or without one from any copy? Regions at rest
 * do not count. CO_OK; CO_NOTFOUND: none could; CO_CORRUPT. */
int failover_others(struct store_txn *txn, const Pb__Failover *record, struct arena *arena);
/* Does the order name the service itself in a region that has no copy here? That is this region, or an unknown one. */
bool failover_names_home(struct store_txn *txn, const Pb__Failover *record, struct arena *arena);
/* Applier thread. This entry took a healthy instance of the service out of that region's copy, or a tag from one. */
void failover_lost_there(struct machine_tx *tx, const char *region, struct slice service);
/* Applier thread. A whole copy may have changed, or readers no longer see it. */
void failover_copy_turned(struct machine_tx *tx);

#endif
