/* OS service checks: what systemd says of a unit, by way of its own program. Properties are read rather than
 * `is-active`, to tell a unit that is down from one that is not there. Consul has this check on Windows only; the
 * states are mapped as there: running is passing, stopped critical, what is on its way from one to the other a
 * warning. */
#include <stdlib.h>
#include <sys/wait.h>

#include "base/check.h"
#include "health/check_program.h"

#define OUTPUT_MOST 2048

/* The value of a line "NAME=value"; empty when there is none. */
static struct slice property(struct slice text, const char *name) {
    size_t size = strlen(name);
    while (text.size > 0) {
        const char *end = memchr(text.data, '\n', text.size);
        size_t line = end ? (size_t)(end - text.data) : text.size;
        if (line > size && memcmp(text.data, name, size) == 0 && text.data[size] == '=') {
            return slice_make(text.data + size + 1, line - size - 1);
        }
        size_t step = line + (end != NULL);
        text = slice_make(text.data + step, text.size - step);
    }
    return slice_text("");
}

void os_service_judge(const char *unit, const struct program_end *end, Pb__Status *status, struct buffer *text) {
    struct slice load = property(end->output, "LoadState"), active = property(end->output, "ActiveState");
    struct slice sub = property(end->output, "SubState");
    bool asked = WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == 0 && active.size > 0;
    *status = PB__STATUS__CRITICAL;
    if (!asked) { /* as in a container: its words are on its output */
        buffer_printf(text, "systemd cannot be asked about service \"%s\": ", unit);
        size_t size = end->output.size;
        while (size > 0 && end->output.data[size - 1] == '\n') size--;
        buffer_append(text, end->output.data, size);
    } else if (slice_is(load, "not-found")) {
        buffer_printf(text, "service \"%s\" is not known to systemd - OS Service unhealthy", unit);
    } else if (slice_is(active, "active")) {
        *status = PB__STATUS__PASSING;
        buffer_printf(text, "Service \"%s\" is healthy", unit);
    } else {
        bool down = slice_is(active, "inactive") || slice_is(active, "failed");
        if (!down) *status = PB__STATUS__WARNING;
        buffer_printf(text, "service status: %.*s (%.*s)%s", (int)active.size, active.data, (int)sub.size, sub.data,
                      down ? " - OS Service unhealthy" : "");
    }
}

static void judge(const struct program *program, const struct program_end *end, Pb__Status *status,
                  struct buffer *text) {
    size_t last = 0;
    while (program->argv[last + 1]) last++;
    *status = PB__STATUS__CRITICAL;
    if (end->error) buffer_printf(text, "systemd cannot be asked about service \"%s\": ", program->argv[last]);
    if (!program_failed(program, end, text)) os_service_judge(program->argv[last], end, status, text);
}

struct run *run_os_service_start(struct runners *runners, const struct check_definition *definition) {
    char *argv[] = {(char *)"systemctl", (char *)"show",         (char *)"--property=LoadState,ActiveState,SubState",
                    (char *)"--",        definition->os_service, NULL};
    return run_program_start(runners, definition, argv, OUTPUT_MOST, judge);
}
