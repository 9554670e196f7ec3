#include <criterion/criterion.h>
#include <ctype.h>

#include "base/check.h"
#include "base/log.h"

static void keep(void *data, enum log_level level, const char *line, size_t size) {
    (void)level;
    buffer_append(data, line, size);
}

static struct buffer lines;

static void listen(void) { log_set_sink(keep, &lines); }
static void silence(void) {
    log_set_sink(NULL, NULL);
    buffer_free(&lines);
}

TestSuite(log, .init = listen, .fini = silence);

Test(log, line) {
    log_info("raft", "became leader term=%d index=%d", 3, 17);
    static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ [INFO] raft: became leader term=3 index=17\n";
    cr_assert_eq(lines.size, sizeof shape - 1);
    for (size_t i = 0; i < 24; i++) {
        bool fits = shape[i] == 'd' ? isdigit((unsigned char)lines.data[i]) : lines.data[i] == shape[i];
        cr_expect(fits, "byte %zu of %.*s", i, (int)lines.size, lines.data);
    }
    cr_expect(slice_is(slice_make(lines.data + 24, lines.size - 24), shape + 24));
}

Test(log, levels) {
    log_level_now = LOG_WARN;
    log_info("a", "not seen");
    log_debug("a", "not seen");
    log_trace("a", "not seen");
    cr_expect_eq(lines.size, 0);
    log_warn("a", "seen");
    log_error("a", "seen");
    cr_expect_gt(lines.size, 0);
}

Test(log, one_line_always) {
    log_warn("http", "path=%s", "/a\n2026 [ERROR] forged\r\x1b[2J");
    size_t ends = 0;
    for (size_t i = 0; i + 1 < lines.size; i++) ends += iscntrl((unsigned char)lines.data[i]) != 0;
    cr_expect_eq(ends, 0);
    cr_expect_eq(lines.data[lines.size - 1], '\n');
}

Test(log, long_lines_are_cut) {
    log_warn("http", "%05000d", 7);
    cr_expect_lt(lines.size, 2100);
    cr_expect(slice_is(slice_make(lines.data + lines.size - 4, 4), "...\n"));
}

Test(log_level, names) {
    static const struct {
        const char *text;
        int level;
    } rows[] = {{"trace", LOG_TRACE}, {"DEBUG", LOG_DEBUG}, {"Info", LOG_INFO}, {"warn", LOG_WARN},
                {"err", LOG_ERROR},   {"ERROR", LOG_ERROR}, {"", -1},           {"loud", -1},
                {"info ", -1}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect_eq(log_level_parse(slice_text(rows[i].text)), rows[i].level);
}
