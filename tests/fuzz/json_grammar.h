/* Makes up bodies that the readers of JSON take, or nearly: what changing single bytes would take long to find. */
#ifndef COORD_TESTS_FUZZ_JSON_GRAMMAR_H
#define COORD_TESTS_FUZZ_JSON_GRAMMAR_H

#include "base/buffer.h"
#include "base/random.h"

/* Kinds of objects: R catalog/register, D catalog/deregister, S session/create, A an agent's service, K an agent's
 * check, T a transaction (a list of o), I one with comparisons; those inside: o an operation, v of keys, n of
 * nodes, p of services, q of checks, f of fences, x a comparison, y of keys; s a service, c a check, w weights, t tagged addresses, a an address. Apart from these: J a JSON Schema, j a simple one within it. */
#define JSON_GRAMMAR_BODIES "RDSAKGTI"

void json_grammar_object(struct buffer *out, char kind, struct rng *rng);
/* One member of a body of some kind: "key":value. */
void json_grammar_member(struct buffer *out, struct rng *rng);
/* The same for a JSON Schema. */
void json_grammar_keyword(struct buffer *out, struct rng *rng);

#endif
