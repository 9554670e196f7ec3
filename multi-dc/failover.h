/* Failover: a service without healthy instances here is answered from another region, and comes home by itself.
 *
 * Healthy is what DNS gives out: passing or warning, or held by self-preservation. While there is none here, the answer is
 * that of the first target which has some: what the operator ordered for the service (FAILOVER_SET), else the nearest
 * region (multi-dc/global.h). Without any the answer is this region's, as it is.
 *
 * So that a service whose checks flap does not go back and forth, going is at once and coming back is not: the entry that
 * takes the last healthy instance away notes it (`away`), and as long as that stands others answer. The leader takes it
 * back when it has seen healthy instances here for FAILOVER_RETURN_MS on end (multi-dc/returning.h); a relapse meanwhile
 * makes `away` another index, which an order to come home does not fit. A change of leader begins the time anew.
 * Nothing is noted while no other region is known. A module of the state machine. */
#ifndef COORD_MULTI_DC_FAILOVER_H
#define COORD_MULTI_DC_FAILOVER_H

#include "multi-dc/failover.pb-c.h"
#include "multi-dc/global.h"

#define FAILOVER_SINCE        7 /* cluster version */
#define FAILOVER_RETURN_MS    10000
#define FAILOVER_SERVICES_MAX 10000 /* on record; beyond, services come home at once */
#define FAILOVER_TARGETS_MAX  16

enum failover_command { FAILOVER_SET = 217, FAILOVER_HOME = 218 };
enum failover_space { SPACE_FAILOVER = 117 }; /* name "": which services are away, and the orders */

extern const struct module failover_module;
extern const struct query_type query_failovers; /* FailoversRequest -> FailoversResult */
/* AnswerRequest -> AnswerResult. Watch keys: the service here and elsewhere, orders, regions. */
extern const struct query_type query_answer;

#endif
