/* For the tests of dns/: queries in, answers read by ldns (which is not what wrote them) into lines of text. */
#ifndef COORD_TESTS_DNS_DNS_HELP_H
#define COORD_TESTS_DNS_DNS_HELP_H

#include <ldns/ldns.h>

#include "dns/packet.h"

/* A query for `name` (as it is written: upper and lower case are kept). `edns` 0: without OPT. Returns its size. */
size_t help_query(uint8_t *out, const char *name, unsigned type, unsigned edns);

/* One answer, parsed. An answer that ldns does not take ends the test. */
struct help_answer {
    int rcode;
    bool aa, tc, ra, rd, edns;
    size_t size, answers, authorities, additionals; /* additionals: without OPT */
    char *answer, *authority, *additional;          /* "name. ttl class type data", a line each, sorted; malloc */
    char question[300];
};
struct help_answer help_parse(const uint8_t *data, size_t size);
void help_free(struct help_answer *answer);

/* The lines of a section must be just these; "A\nB" in sorted order. */
#define EXPECT_LINES(got, wanted) cr_expect_str_eq((got), (wanted), "got:\n%s\nwanted:\n%s", (got), (wanted))

#endif
