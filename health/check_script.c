/* Script checks: a program whose exit code is the result, as Nagios plugins have it: 0 passing, 1 warning, anything
 * else critical. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/check.h"
#include "health/check_program.h"

static void judge(const struct program *program, const struct program_end *end, Pb__Status *status,
                  struct buffer *text) {
    *status = PB__STATUS__CRITICAL;
    if (program_failed(program, end, text)) return;
    program_append_output(end, text);
    if (WIFEXITED(end->wait_status)) {
        int code = WEXITSTATUS(end->wait_status);
        *status = code == 0 ? PB__STATUS__PASSING : code == 1 ? PB__STATUS__WARNING : PB__STATUS__CRITICAL;
    } else if (text->size == 0) {
        buffer_printf(text, "The program was ended by signal %d (%s)", WTERMSIG(end->wait_status),
                      strsignal(WTERMSIG(end->wait_status)));
    }
}

struct run *run_script_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max) {
    CHECK(definition->arg_count > 0);
    char **argv = mem_zalloc((definition->arg_count + 1) * sizeof *argv);
    for (size_t i = 0; i < definition->arg_count; i++) argv[i] = definition->args[i];
    struct run *run = run_program_start(runners, definition, argv, output_max, judge);
    free(argv);
    return run;
}
