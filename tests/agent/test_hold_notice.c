/* The notice to a person who waits: who is in the way. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "agent/hold_notice.h"
#include "base/json_in.h"

#define NOW 1700000302000

static void check(const char *view, const char *session, bool leaves, const char *wanted) {
    struct fault fault = {0};
    struct buffer text = {0};
    struct json_object *json = json_parse(slice_make(view, strlen(view)), &fault);
    cr_assert(json, "%s: %s", view, fault.text);
    hold_notice(json, session, leaves, NOW, &text);
    buffer_append_byte(&text, '\0');
    cr_assert_str_eq(text.data, wanted);
    buffer_free(&text);
    json_object_put(json);
}

#define LOCK(holders, more) "{\"Name\":\"x\",\"Holders\":[" holders "]" more "}"
#define WEB1                "{\"Session\":\"a\",\"Node\":\"web1\",\"Note\":\"backup.sh\",\"Since\":1700000000000}"
#define QUEUE                                                                            \
    ",\"Queue\":[{\"Session\":\"b\",\"Position\":1},{\"Session\":\"c\",\"Position\":2}," \
    "{\"Session\":\"d\",\"Position\":3}]"

Test(hold_notice, of_a_lock) {
    check(LOCK(WEB1, QUEUE), "d", false, "is held by web1 (backup.sh) for 5m2s, 2 before you");
    check(LOCK(WEB1, QUEUE), "b", false, "is held by web1 (backup.sh) for 5m2s, you are next");
    check(LOCK(WEB1, QUEUE), "z", false, "is held by web1 (backup.sh) for 5m2s");
    check(LOCK(WEB1, ""), "", false, "is held by web1 (backup.sh) for 5m2s");
    check(LOCK("", ""), "", false, "");
    check(LOCK("", QUEUE ",\"Delays\":1"), "c", false, "is free when a lock-delay is over, 1 before you");
}

Test(hold_notice, of_a_semaphore) {
    check(LOCK(WEB1 "," WEB1, ""), "", false, "is held by web1 (backup.sh) for 5m2s and 1 other");
    check(LOCK(WEB1 "," WEB1 "," WEB1, QUEUE), "c", false,
          "is held by web1 (backup.sh) for 5m2s and 2 others, 1 before you");
}

Test(hold_notice, of_what_others_wrote) {
    check(LOCK("{\"Session\":\"a\",\"Node\":\"\",\"Note\":\"\"}", ""), "", false, "is held by a");
    check(LOCK("{\"Session\":\"a\",\"Note\":\"by hand\"}", ""), "", false, "is held by by hand");
    check(LOCK("{\"Session\":\"a\",\"Node\":\"n\",\"Note\":\"x\\u001b[2J\\nmore\"}", ""), "", false,
          "is held by n (x?[2J...)");
    check(LOCK("{\"Node\":\"n\",\"Since\":1700009999000}", ""), "", false,
          "is held by n for 0s"); /* its clock is ahead */
    char view[400], wanted[400], dashes[121];
    memset(dashes, '-', 120), dashes[120] = '\0';
    snprintf(view, sizeof view, LOCK("{\"Node\":\"n\",\"Note\":\"%.79s\xc3\xbc%s\"}", ""), dashes, dashes);
    snprintf(wanted, sizeof wanted, "is held by n (%.79s...)", dashes);
    check(view, "", false, wanted);
}

Test(hold_notice, of_an_election) {
    check(
        "{\"Name\":\"x\",\"Leader\":{\"Session\":\"a\",\"Node\":\"web1\",\"Value\":\"10.0.0.7:5432\",\"Since\":"
        "1700000300000},"
        "\"Candidates\":[{\"Session\":\"b\",\"Priority\":0,\"Position\":1}]}",
        "b", false, "is led by web1 (10.0.0.7:5432) for 2s, you are next");
    check("{\"Name\":\"x\",\"Leader\":null,\"Candidates\":[]}", "b", false, "");
}

Test(hold_notice, of_a_barrier) {
    static const char view[] =
        "{\"Name\":\"x\",\"Parties\":5,\"Entered\":[{\"Session\":\"a\"},{\"Session\":\"b\"}],"
        "\"Working\":[{\"Session\":\"c\"}]}";
    check(view, "a", false, "waits: 2 of 5 have entered");
    check(view, "d", true, "waits: 1 has not left yet");
    check("{\"Parties\":0,\"Entered\":[],\"Working\":[]}", "d", true, "");
}
