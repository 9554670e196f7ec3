/* The self-audit's judgement and its ring. */
#include <criterion/criterion.h>

#include "registry/audit.h"

Test(audit, the_ring_keeps_the_newest) {
    struct audit_ring ring = {0};
    uint64_t sum;
    cr_assert_eq(audit_newest(&ring), 0);
    for (uint64_t i = 1; i <= AUDIT_KEPT + 3; i++) audit_note(&ring, i * AUDIT_EVERY, i);
    cr_assert_eq(ring.count, AUDIT_KEPT);
    cr_assert_eq(audit_newest(&ring), (AUDIT_KEPT + 3) * AUDIT_EVERY);
    cr_assert(!audit_find(&ring, 3 * AUDIT_EVERY, &sum));
    cr_assert(audit_find(&ring, 4 * AUDIT_EVERY, &sum) && sum == 4);
    cr_assert(!audit_find(&ring, 4 * AUDIT_EVERY + 1, &sum));
    audit_note(&ring, 7 * AUDIT_EVERY, 9); /* a state that is further back: nothing of the other counts */
    cr_assert_eq(ring.count, 1);
    cr_assert(audit_find(&ring, 7 * AUDIT_EVERY, &sum) && sum == 9);
}

/* Sums at index 512 and 1024; 0: not noted. Server 1 judges itself. */
struct row {
    const char *what;
    size_t voters;
    struct {
        bool learner;
        uint64_t at_512, at_1024;
    } servers[5];
    enum audit_verdict verdict;
    uint64_t index;
};

static const struct row rows[] = {
    {"alone", 1, {{.at_512 = 7}}, AUDIT_EQUAL, 512},
    {"nothing noted", 3, {{0}, {0, 7, 0}, {0, 7, 0}}, AUDIT_NOTHING, 0},
    {"only we have noted", 3, {{0, 7, 0}, {0}, {0}}, AUDIT_NOTHING, 0},
    {"two of three are equal", 3, {{0, 7, 0}, {0, 7, 0}, {0}}, AUDIT_EQUAL, 512},
    {"all are equal, twice", 3, {{0, 7, 8}, {0, 7, 8}, {0, 7, 8}}, AUDIT_EQUAL, 1024},
    {"another one differs", 3, {{0, 7, 0}, {0, 7, 0}, {0, 6, 0}}, AUDIT_EQUAL, 512},
    {"we differ", 3, {{0, 6, 0}, {0, 7, 0}, {0, 7, 0}}, AUDIT_MINORITY, 512},
    {"we differ, and one is missing", 3, {{0, 6, 0}, {0, 7, 0}, {0}}, AUDIT_OPEN, 512},
    {"three values", 3, {{0, 5, 0}, {0, 6, 0}, {0, 7, 0}}, AUDIT_SPLIT, 512},
    {"two servers that differ", 2, {{0, 5, 0}, {0, 6, 0}}, AUDIT_SPLIT, 512},
    {"two of five and two of five", 5, {{0, 5, 0}, {0, 5, 0}, {0, 6, 0}, {0, 6, 0}, {0}}, AUDIT_OPEN, 512},
    {"two, two and one", 5, {{0, 5, 0}, {0, 5, 0}, {0, 6, 0}, {0, 6, 0}, {0, 7, 0}}, AUDIT_SPLIT, 512},
    {"three of five against us", 5, {{0, 5, 0}, {0, 6, 0}, {0, 6, 0}, {0, 6, 0}, {0}}, AUDIT_MINORITY, 512},
    {"the newest that can be judged counts", 3, {{0, 7, 9}, {0, 7, 8}, {0, 7, 8}}, AUDIT_MINORITY, 1024},
    {"others lag behind", 3, {{0, 7, 9}, {0, 7, 0}, {0, 7, 0}}, AUDIT_EQUAL, 512},
    {"equal before, now they differ", 3, {{0, 7, 9}, {0, 7, 8}, {0, 7, 0}}, AUDIT_OPEN, 1024},
    {"healed since", 3, {{0, 6, 8}, {0, 7, 8}, {0, 7, 0}}, AUDIT_EQUAL, 1024},
    {"a learner judges itself too", 2, {{true, 6, 0}, {0, 7, 0}, {0, 7, 0}}, AUDIT_MINORITY, 512},
    {"a learner does not vote", 3, {{0, 6, 0}, {0, 7, 0}, {true, 7, 0}, {0}}, AUDIT_OPEN, 512},
    {"a learner among equals", 3, {{true, 7, 0}, {0, 7, 0}, {0, 7, 0}, {0}}, AUDIT_EQUAL, 512},
};

static void fill(struct audit_report *report, const struct row *row, size_t i) {
    *report = (struct audit_report){.id = i + 1, .voter = !row->servers[i].learner};
    if (row->servers[i].at_512) audit_note(&report->ring, 512, row->servers[i].at_512);
    if (row->servers[i].at_1024) audit_note(&report->ring, 1024, row->servers[i].at_1024);
}

Test(audit, judgements) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct audit_report reports[5];
        for (size_t i = 0; i < 5; i++) fill(&reports[i], &rows[r], i);
        struct audit_judgement got = audit_judge(1, rows[r].voters, reports, 5);
        cr_expect_eq(got.verdict, rows[r].verdict, "%s: verdict %d instead of %d", rows[r].what, (int)got.verdict,
                     (int)rows[r].verdict);
        cr_expect_eq(got.index, rows[r].index, "%s: index %lu", rows[r].what, (unsigned long)got.index);
        if (got.verdict == AUDIT_EQUAL) cr_expect_eq(got.own, got.other, "%s", rows[r].what);
        if (got.verdict >= AUDIT_MINORITY) cr_expect_neq(got.own, got.other, "%s", rows[r].what);
    }
}

Test(audit, a_server_without_a_report_of_its_own_judges_nothing) {
    struct audit_report other = {.id = 2, .voter = true};
    audit_note(&other.ring, 512, 7);
    cr_assert_eq(audit_judge(1, 3, &other, 1).verdict, AUDIT_NOTHING);
}
