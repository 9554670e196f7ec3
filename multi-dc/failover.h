/* Failover: a service without healthy instances here is answered from another region, and comes home by itself.
 *
 * Healthy is what DNS gives out: passing or warning, or held by self-preservation. While there is none here, the answer is
 * that of the first target which has some: what the operator ordered for the service (FAILOVER_SET), else the nearest
 * region (multi-dc/global.h). Without any the answer is this region's, as it is.
 *
 * A healthy home is not left. This region answers with another's instances while it has healthy ones of its own only if it was
 * healthy here before, went, was answered from elsewhere when it became healthy again, has not been healthy for
 * coord.failover_return since, and at each moment since then somebody else was there to answer. That delays coming home, so
 * that a service whose checks flap does not go back and forth; it sends nobody away.
 *
 * All of it is noted by entries, and decided from the state as it is at their end (registry/catalog_turns.h):
 *
 *   away_index  the entry that took the last healthy instance away, of a service that another region has or whose order names
 *               others. Going is at once.
 *   back_index  the entry that brought a healthy one again, if others answered then. Else the service is home: that entry takes
 *               the note away. While back_index stands, others answer: the service waits to come home.
 *
 * The note goes, for good, within the entry that leaves nobody who could answer in its place: that takes the last healthy
 * instance of the last other one away (also of another service that its order names, or the tag that the order wants), replaces
 * or forgets a copy (COPY_COMMIT, COPY_FORGET), or changes the order. A relapse here makes it a note of the first kind again. When
 * back_index has stood for coord.failover_return the leader takes both away (multi-dc/returning.h, FAILOVER_HOME).
 *
 * So a service that was not healthy here since it appeared here, or since another region's copy or an order came for it, comes
 * home at once the first time. One that was deregistered in between, and is registered anew, is the same service.
 *
 * An order may name this region. Another service of it is answered with, but is nothing to wait for: who had only that comes home at
 * once. The service itself in this region is home. The state does not know what this region is called: an order that names the
 * service in a region of which there is no copy, and is replaced while the service waits, may have been answered here, and the
 * service comes home.
 *
 * Another region whose checks flap meanwhile is damped by the same rule: while the service is away, the entry that takes the
 * last healthy instance of a region's copy away notes that too (`rests`, each with an away_index, and a back_index, which the
 * leader's look notes). A region at rest is passed over, for orders and for the nearest, unless nobody else has healthy instances,
 * this region included; nobody waits for it either. Its rest ends by FAILOVER_HOME with the region's name, or with the whole note
 * when the service comes home. One whose copy, or whose service there, is gone ends as if it were healthy. A large change of a copy
 * (COPY_COMMIT) notes no rest, and ends none; neither does another service that an order names.
 *
 * Nothing is noted of a service that no other region has and no order names, and what is on record of such a one goes.
 * A change of leader begins the time anew.
 *
 * Cost: an entry that turns no instance here between healthy and not, and none of a copy of a service on record, looks at nothing. One
 * that does looks at all instances here only when it went, or may have gone, between healthy and not, else at one of them; at
 * others' only when the service becomes healthy, or one that waits may have lost the last of them, each time up to the first
 * healthy one. COPY_COMMIT and COPY_FORGET look at all records, and at others' instances for those that wait.
 * A module of the state machine. */
#ifndef COORD_MULTI_DC_FAILOVER_H
#define COORD_MULTI_DC_FAILOVER_H

#include "multi-dc/failover.pb-c.h"
#include "multi-dc/global.h"

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
/* AnswerRequest -> AnswerResult. What waits to come home is the service: a name with a tag, or a question for passing
 * instances alone, may be answered from elsewhere when home has none of those. Wakes when the service here or elsewhere, `others`, its order or the regions change. Which
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
