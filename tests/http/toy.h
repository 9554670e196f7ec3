/* A module of the tests: things under names, each made for a session. One command, two queries. */
#ifndef COORD_TESTS_HTTP_TOY_H
#define COORD_TESTS_HTTP_TOY_H

#include "registry/module.h"
#include "tests/http/toy.pb-c.h"

enum { TOY_PUT = 200, SPACE_TOYS = 119 };
extern const struct module toy_module;
extern const struct query_type query_toy, query_toys; /* ToyRequest -> Toy; ToyListRequest -> ToysResult */

#endif
