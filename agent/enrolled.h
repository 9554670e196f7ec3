/* Constants of nodes of a cluster with certificates of its own. */
#ifndef COORD_AGENT_ENROLLED_H
#define COORD_AGENT_ENROLLED_H

#define ENROLLED_LIFE_S     (7 * 24 * 3600) /* of a node's certificate */
#define ENROLLED_SKEW_S     300             /* certificates count from so long ago, for clocks that are behind */
#define ENROLLED_DNS_DOMAIN "coord"

#endif
