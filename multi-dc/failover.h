/* Failover: a service without healthy instances here is answered from another region, and comes home by itself.
 *
 * Healthy is what DNS gives out: passing or warning, or held by self-preservation. While there is none here, the answer is
 * that of the first target which has some: what the operator ordered for the service (FAILOVER_SET), else the nearest
 * region (multi-dc/global.h). Without any the answer is this region's, as it is.
 *
 * So that a service whose checks flap does not go back and forth, going is at once and coming home is not: the entry that
 * takes the last healthy instance away notes it (`away_index`), and as long as that stands others answer. That there are
 * healthy instances again is noted by the leader, which looks now and then (`back_index`, FAILOVER_HOME). From then on each
 * entry watches over it: a relapse takes it back, within the entry that brings it. When `back_index` has stood for
 * coord.failover_return, the leader takes both away (multi-dc/returning.h). So an entry looks at all instances of a service
 * only when it went, or may have gone, from healthy to not; else at one of them, or at none.
 *
 * Another region whose checks flap meanwhile is damped by the same rule: while the service is away, the entry that takes the
 * last healthy instance of a region's copy away notes that too (`rests`, each with an away_index and a back_index as above).
 * A region at rest is passed over, for orders and for the nearest, unless nobody else has healthy instances, this region
 * included. Its rest ends as a service comes home, by FAILOVER_HOME with the region's name, or with the whole note when the
 * service does. One whose copy, or whose service there, is gone ends as if it were healthy. A large change of a copy
 * (COPY_COMMIT) notes nothing and takes nothing back; neither does another service that an order names.
 *
 * Nothing is noted of a service that no other region has and no order names, and what is on record of such a one goes. One
 * that was without healthy instances here before the first copy of another region, or a large change of one, brought it,
 * comes home at once the first time.
 * A change of leader begins the time anew. A module of the state machine. */
#ifndef COORD_MULTI_DC_FAILOVER_H
#define COORD_MULTI_DC_FAILOVER_H

#include "multi-dc/failover.pb-c.h"
#include "multi-dc/global.h"

#define FAILOVER_SINCE        7 /* cluster version */
#define FAILOVER_RETURN_MS    10000
#define FAILOVER_SERVICES_MAX 10000 /* on record; beyond, services come home at once, and orders are refused */
#define FAILOVER_TARGETS_MAX  16
#define FAILOVER_TAGS_MAX     16  /* of a target */
#define FAILOVER_NAME_MAX     255 /* bytes of a service's name, and of a tag; longer ones are answered from here */

enum failover_command { FAILOVER_SET = 217, FAILOVER_HOME = 218 };
enum failover_space { SPACE_FAILOVER = 117 }; /* a service's name, without regard to case; "": that of any */

/* Results: yes. Refused: CO_INVALID (a name, too many of something), CO_TOOLARGE (FAILOVER_SERVICES_MAX); FAILOVER_HOME:
 * CO_CONFLICT. */
extern const struct module failover_module;
extern const struct query_type query_failovers; /* FailoversRequest -> FailoversResult: all that is on record */
extern const struct query_type query_failover;  /* FailoverRequest -> FailoverResult; not found: nothing is on record */
/* AnswerRequest -> AnswerResult. Wakes when the service here or elsewhere, `others`, its order or the regions change. Which
 * others an order names is known before: from query_failover, whose change wakes this one too. */
extern const struct query_type query_answer;
extern const struct query_type
    query_explain; /* AnswerRequest -> ExplainResult: how that answer comes about; not waited for */

/* -- inside ------------------------------------------------------------------------------------------------------- */
/* CO_NOTFOUND: nothing is on record. */
int failover_record(struct store_txn *txn, struct slice service, struct arena *arena, Pb__Failover **record);
/* Could anybody answer in its place, by its order or else from any copy? Regions at rest do not count. CO_OK; CO_NOTFOUND:
 * nobody; CO_CORRUPT. */
int failover_others(struct store_txn *txn, const Pb__Failover *record, struct arena *arena);
/* Does its order name the service itself in a region that has no copy here? That is this region, or none that is known. */
bool failover_names_home(struct store_txn *txn, const Pb__Failover *record, struct arena *arena);
/* The applier. This entry took a healthy instance of it out of that region's copy, or a tag from one. */
void failover_lost_there(struct machine_tx *tx, const char *region, struct slice service);
/* All of a copy may be another than before, or is not seen any more. */
void failover_copy_turned(struct machine_tx *tx);

#endif
