/* Programs that checks run, the nasty ones too: none blocks the loop, costs memory, or leaves anything behind. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "health/check_program.h"
#include "health/definition.h"

struct outcome {
    bool ended;
    Pb__Status status;
    char output[6000];
    size_t size;
    uint64_t after_ms;
};

struct scene {
    uv_loop_t loop;
    struct runners runners;
    uv_timer_t beat; /* of a loop that does not stand still */
    uint64_t last_ns, longest_ns, begun_ms;
    bool all_closed;
};

static void on_done(void *data, Pb__Status status, struct slice output) {
    struct outcome *outcome = data;
    CHECK(!outcome->ended);
    outcome->ended = true;
    outcome->status = status;
    outcome->size = output.size;
    snprintf(outcome->output, sizeof outcome->output, "%.*s", (int)output.size, output.data);
}

static void on_beat(uv_timer_t *timer) {
    struct scene *scene = timer->data;
    uint64_t now = clock_mono_ns();
    if (scene->last_ns && now - scene->last_ns > scene->longest_ns) scene->longest_ns = now - scene->last_ns;
    scene->last_ns = now;
}

static void on_closed(struct runners *runners) { CONTAINER_OF(runners, struct scene, runners)->all_closed = true; }

static void scene_begin(struct scene *scene) {
    *scene = (struct scene){.begun_ms = clock_mono_ms()};
    CHECK(uv_loop_init(&scene->loop) == 0);
    runners_init(&scene->runners, &scene->loop);
    uv_timer_init(&scene->loop, &scene->beat);
    scene->beat.data = scene;
    uv_timer_start(&scene->beat, on_beat, 1, 1);
}

static void scene_end(struct scene *scene) {
    uv_close((uv_handle_t *)&scene->beat, NULL);
    runners_close(&scene->runners, on_closed);
    uv_run(&scene->loop, UV_RUN_DEFAULT);
    CHECK(scene->all_closed && uv_loop_close(&scene->loop) == 0);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD); /* no zombie, no child */
}

static struct run *start_as(struct scene *scene, const char *id, const char *const *args, int64_t timeout_ms,
                            uint32_t output_max, struct outcome *outcome) {
    struct check_definition *d = check_definition_blank(id, "");
    size_t count = 0;
    while (args[count]) count++;
    d->kind = CHECK_SCRIPT;
    d->args = mem_zalloc(count * sizeof *d->args);
    for (; d->arg_count < count; d->arg_count++) d->args[d->arg_count] = mem_strdup(args[d->arg_count]);
    d->timeout_ns = timeout_ms * 1000000;
    struct run *run = run_start(&scene->runners, d, output_max, on_done, outcome);
    check_definition_free(d);
    CHECK(!outcome->ended);
    return run;
}

static struct run *start(struct scene *scene, const char *const *args, int64_t timeout_ms, uint32_t output_max,
                         struct outcome *outcome) {
    return start_as(scene, "c", args, timeout_ms, output_max, outcome);
}

static void until_ended(struct scene *scene, const struct outcome *outcome) {
    while (!outcome->ended) uv_run(&scene->loop, UV_RUN_ONCE);
}

static struct outcome run_args(const char *const *args, int64_t timeout_ms, uint32_t output_max) {
    struct scene scene;
    struct outcome outcome = {0};
    scene_begin(&scene);
    (void)start(&scene, args, timeout_ms, output_max, &outcome);
    until_ended(&scene, &outcome);
    outcome.after_ms = clock_mono_ms() - scene.begun_ms;
    scene_end(&scene);
    return outcome;
}

static struct outcome run_shell(const char *text, int64_t timeout_ms, uint32_t output_max) {
    return run_args((const char *const[]){"/bin/sh", "-c", text, NULL}, timeout_ms, output_max);
}

static void expect(const struct outcome *outcome, const char *story, Pb__Status status, const char *output) {
    if (outcome->status == status && (!output || strcmp(outcome->output, output) == 0)) return;
    fprintf(stderr, "%s: status %d, output \"%s\"\n", story, outcome->status, outcome->output);
    abort();
}

/* Everything that was started from here has this in its environment. */
static char own_mark[60];

static bool file_holds(const char *pid, const char *name, const char *text) {
    static char content[65536];
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t size = fread(content, 1, sizeof content - 1, file);
    fclose(file);
    for (size_t i = 0; i < size; i++) content[i] = content[i] ? content[i] : ' ';
    content[size] = '\0';
    return strstr(content, text) != NULL;
}

/* Whether a process of ours with this text in its command line is there. */
static bool is_running(const char *mark) {
    DIR *dir = opendir("/proc");
    bool found = false;
    for (struct dirent *entry; !found && dir && (entry = readdir(dir));) {
        const char *pid = entry->d_name;
        bool other = atoi(pid) > 0 && atoi(pid) != getpid();
        found = other && file_holds(pid, "cmdline", mark) && file_holds(pid, "environ", own_mark);
    }
    closedir(dir);
    return found;
}

static void gone(const char *mark) {
    uint64_t end = clock_mono_ms() + 60000;
    while (is_running(mark)) {
        CHECK(clock_mono_ms() < end);
        usleep(2000);
    }
}

static size_t open_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;
    while (readdir(dir)) count++;
    closedir(dir);
    return count;
}

static size_t resident_kib(void) {
    size_t size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu %zu", &size, &resident) == 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* -- stories
 * -------------------------------------------------------------------------------------------------------- */

static void exit_codes(void) {
    static const struct {
        const char *text, *output;
        Pb__Status status;
    } rows[] = {
        {"echo fine", "fine\n", PB__STATUS__PASSING},
        {"exit 0", "", PB__STATUS__PASSING},
        {"echo hm; exit 1", "hm\n", PB__STATUS__WARNING},
        {"echo no; exit 2", "no\n", PB__STATUS__CRITICAL},
        {"exit 255", "", PB__STATUS__CRITICAL},
        {"echo out; echo err >&2; echo out", "out\nerr\nout\n", PB__STATUS__PASSING},
        {"kill -9 $$", "The program was ended by signal 9 (Killed)", PB__STATUS__CRITICAL},
        {"echo x; kill -15 $$", "x\n", PB__STATUS__CRITICAL},
        {"cat; echo end of input", "end of input\n", PB__STATUS__PASSING},
        {"set -- $(cat /proc/$$/stat); test $5 -eq $$ && echo own group", "own group\n", PB__STATUS__PASSING},
        {"ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ", PB__STATUS__PASSING}, /* 3: ls reads the folder */
        {"yes | head -1", "y\n", PB__STATUS__PASSING}, /* by SIGPIPE; where that is ignored, yes complains */
        {"grep SigBlk: /proc/self/status | tr -d '\\t'", "SigBlk:0000000000000000\n", PB__STATUS__PASSING},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome outcome = run_shell(rows[i].text, 20000, 4096);
        expect(&outcome, rows[i].text, rows[i].status, rows[i].output);
    }
}

static void what_cannot_be_started(void) {
    struct outcome outcome = run_args((const char *const[]){"/nowhere/at/all", NULL}, 20000, 4096);
    expect(&outcome, "no file", PB__STATUS__CRITICAL, "fork/exec /nowhere/at/all: no such file or directory");
    outcome = run_args((const char *const[]){"coord-has-no-such-program", "x", NULL}, 20000, 4096);
    expect(&outcome, "not in PATH", PB__STATUS__CRITICAL,
           "exec: \"coord-has-no-such-program\": executable file not found in $PATH");
    outcome = run_args((const char *const[]){"/etc/passwd", NULL}, 20000, 4096);
    expect(&outcome, "no program", PB__STATUS__CRITICAL, "fork/exec /etc/passwd: permission denied");
    outcome = run_args((const char *const[]){"echo", "$HOME", "; echo x", NULL}, 20000, 4096);
    expect(&outcome, "no shell", PB__STATUS__PASSING, "$HOME ; echo x\n");
}

static void the_last_bytes_are_kept(void) {
    static const uint32_t sizes[] = {1, 7, 4096};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct outcome outcome =
            run_shell("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done", 60000, sizes[i]);
        char head[100];
        int size = snprintf(head, sizeof head, "Captured %u of 18890 bytes\n...\n", sizes[i]);
        CHECK(outcome.status == PB__STATUS__PASSING && strncmp(outcome.output, head, (size_t)size) == 0);
        CHECK(outcome.size == (size_t)size + sizes[i]);
        const char *end = "line 1998\nline 1999\n";
        size_t compared = sizes[i] < strlen(end) ? sizes[i] : strlen(end);
        CHECK(strcmp(outcome.output + outcome.size - compared, end + strlen(end) - compared) == 0);
    }
}

/* 1 GB, while the loop goes on. Sanitizers read slower: less of it. */
static void a_gigabyte_costs_nothing(void) {
#if defined(COORD_TSAN) || defined(COORD_ASAN)
    const unsigned long long megabytes = 100;
#else
    const unsigned long long megabytes = 1000;
#endif
    char text[100], head[100];
    struct scene scene;
    struct outcome outcome = {0};
    snprintf(text, sizeof text, "head -c %lluM /dev/zero | tr '\\0' x", megabytes);
    snprintf(head, sizeof head, "Captured 4096 of %llu bytes\n...\nxxx", megabytes << 20);
    size_t before = resident_kib();
    clock_t cpu = clock();
    scene_begin(&scene);
    (void)start(&scene, (const char *const[]){"/bin/sh", "-c", text, NULL}, 120000, 4096, &outcome);
    until_ended(&scene, &outcome);
    size_t after = resident_kib();
    printf("%llu MB of output: %llu ms, %.0f ms of CPU here, %zu KiB more, longest turn of the loop %.1f ms\n",
           megabytes, (unsigned long long)(clock_mono_ms() - scene.begun_ms),
           (double)(clock() - cpu) * 1e3 / CLOCKS_PER_SEC, after > before ? after - before : 0,
           (double)scene.longest_ns / 1e6);
    CHECK(outcome.status == PB__STATUS__PASSING && strncmp(outcome.output, head, strlen(head)) == 0);
    CHECK(after < before + 4096);
    scene_end(&scene);
}

/* False: one of them had not even begun when its time was up. */
static bool is_killed_after(int64_t timeout_ms) {
    static const struct {
        const char *story, *text, *mark;
    } rows[] = {
        {"sleeps", "echo begun; sleep 7301", "sleep 7301"},
        {"ignores SIGTERM", "trap '' TERM INT HUP; echo begun; while :; do sleep 7302; done", "sleep 7302"},
        {"has children", "echo begun; (sleep 7303 & sleep 7303 & wait) & wait", "sleep 7303"},
        {"stops itself", "echo begun; kill -STOP $$; sleep 7304", "sleep 7304"},
        {"works", "echo begun; while :; do :; done # 7305", "# 7305"},
    };
    struct scene scene;
    struct outcome outcomes[ARRAY_COUNT(rows)] = {0}, chatter = {0};
    bool all_began = true;
    char told[60], begun[80], head[80];
    snprintf(told, sizeof told, "Timed out (%.1fs) running check", (double)timeout_ms / 1e3);
    snprintf(begun, sizeof begun, "%s\n\nbegun\n", told);
    snprintf(head, sizeof head, "%s\n\nCaptured 100 of ", told);
    scene_begin(&scene);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const char *const args[] = {"/bin/sh", "-c", rows[i].text, NULL};
        (void)start_as(&scene, rows[i].story, args, timeout_ms, 4096, &outcomes[i]);
    }
    (void)start_as(&scene, "prints", (const char *const[]){"yes", "7306", NULL}, timeout_ms, 100, &chatter);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        until_ended(&scene, &outcomes[i]);
        bool began = strstr(outcomes[i].output, "begun") != NULL;
        expect(&outcomes[i], rows[i].story, PB__STATUS__CRITICAL, began ? begun : NULL);
        CHECK(strncmp(outcomes[i].output, told, strlen(told)) == 0);
        CHECK(clock_mono_ms() - scene.begun_ms >= (uint64_t)timeout_ms - 10);
        all_began = all_began && began;
    }
    until_ended(&scene, &chatter);
    bool chattered = strstr(chatter.output, "Captured") != NULL;
    expect(&chatter, "prints", PB__STATUS__CRITICAL, NULL);
    CHECK(strncmp(chatter.output, chattered ? head : told, strlen(chattered ? head : told)) == 0);
    scene_end(&scene);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) gone(rows[i].mark);
    gone("yes 7306");
    return all_began && chattered;
}

/* Longer, where the machine is too busy for them to begin. */
static void what_never_ends_is_killed(void) {
    CHECK(is_killed_after(1500) || is_killed_after(7500) || is_killed_after(30500));
}

static void until_running(const char *mark) {
    uint64_t end = clock_mono_ms() + 60000;
    while (!is_running(mark)) {
        CHECK(clock_mono_ms() < end);
        usleep(2000);
    }
}

/* Its result counts as soon as it has ended, whoever still holds its output; what is left of its group goes. */
static void children_are_left_behind(void) {
    static const struct {
        const char *text, *mark;
        Pb__Status status;
    } rows[] = {
        {"sleep 7401 & echo done", "sleep 7401", PB__STATUS__PASSING},
        {"sleep 7402 & echo done; exit 1", "sleep 7402", PB__STATUS__WARNING},
        {"(trap '' TERM HUP; sleep 7403) & echo done", "sleep 7403", PB__STATUS__PASSING},
        {"sleep 7404 >/dev/null 2>&1 & echo done", "sleep 7404", PB__STATUS__PASSING},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome outcome = run_shell(rows[i].text, 60000, 4096);
        expect(&outcome, rows[i].text, rows[i].status, "done\n");
        CHECK(outcome.after_ms < 30000);
        gone(rows[i].mark);
    }
    /* One in a session of its own holds the pipe: it is not ours any more, and blocks nothing. */
    struct outcome outcome = run_shell(
        "said=$(mktemp); setsid sh -c \"echo \\$\\$; echo >$said; exec sleep 7405\" &"
        " until [ -s $said ]; do sleep 0.01; done; rm $said; echo done",
        60000, 4096);
    int pid = atoi(outcome.output);
    CHECK(outcome.status == PB__STATUS__PASSING && strstr(outcome.output, "done\n") && pid > 1);
    CHECK(outcome.after_ms < 30000);
    until_running("sleep 7405");
    CHECK(kill(pid, SIGKILL) == 0);
    gone("sleep 7405");
}

static unsigned running(const struct scene *scene) {
    unsigned count = 0;
    LIST_FOREACH(link, &scene->runners.programs)
        count += LIST_ENTRY(link, struct program, link)->state == PROGRAM_RUNNING;
    return count;
}

/* An agent that is killed with all of its programs running, one of them with a child. */
static void an_agent_that_is_killed_leaves_nothing_behind(void) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t agent = fork();
    CHECK(agent >= 0);
    if (agent == 0) {
        struct scene scene;
        struct outcome outcomes[3] = {0};
        scene_begin(&scene);
        (void)start_as(&scene, "short", (const char *const[]){"true", NULL}, 60000, 100, &outcomes[0]);
        (void)start_as(&scene, "one", (const char *const[]){"sleep", "7501", NULL}, 60000, 100, &outcomes[1]);
        const char text[] = "trap '' TERM HUP; sleep 7502 & wait";
        (void)start_as(&scene, "two", (const char *const[]){"/bin/sh", "-c", text, NULL}, 60000, 100, &outcomes[2]);
        until_ended(&scene, &outcomes[0]);
        while (running(&scene) != 2) uv_run(&scene.loop, UV_RUN_ONCE);
        CHECK(write(ready[1], "x", 1) == 1);
        uv_run(&scene.loop, UV_RUN_DEFAULT);
        _exit(1);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
    until_running("sleep 7501");
    until_running("sleep 7502");
    CHECK(kill(agent, SIGKILL) == 0 && waitpid(agent, NULL, 0) == agent);
    gone("sleep 7501");
    gone("sleep 7502");
    gone("coord-program-keeper");
}

/* Of one check there is one program at a time, even if the attempt before was given up. */
static void attempts_of_one_check_do_not_overlap(void) {
    struct scene scene;
    struct outcome first = {0}, second = {0};
    char folder[] = "/tmp/coord-test-XXXXXX", text[300], clean[80];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(text, sizeof text, "mkdir %s/lock || exit 2; trap 'rmdir %s/lock' EXIT; sleep 0.2", folder, folder);
    scene_begin(&scene);
    (void)start(&scene, (const char *const[]){"/bin/sh", "-c", text, NULL}, 20000, 100, &first);
    (void)start(&scene, (const char *const[]){"/bin/sh", "-c", text, NULL}, 20000, 100, &second);
    until_ended(&scene, &first);
    CHECK(!second.ended);
    until_ended(&scene, &second);
    expect(&first, "first", PB__STATUS__PASSING, "");
    expect(&second, "second", PB__STATUS__PASSING, "");
    scene_end(&scene);
    snprintf(clean, sizeof clean, "rm -rf %s", folder);
    CHECK(system(clean) == 0);
}

static void cancelled_at_any_moment(void) {
    for (unsigned turns = 0; turns < 12; turns++) {
        struct scene scene;
        struct outcome outcome = {0};
        scene_begin(&scene);
        struct run *run =
            start(&scene, (const char *const[]){"/bin/sh", "-c", "echo x; sleep 7501", NULL}, 60000, 100, &outcome);
        for (unsigned i = 0; i < turns; i++) uv_run(&scene.loop, UV_RUN_ONCE);
        run_cancel(run);
        scene_end(&scene);
        CHECK(!outcome.ended);
        gone("sleep 7501");
    }
}

static void many_at_once(void) {
    enum { COUNT = 60 };
    struct scene scene;
    static struct outcome outcomes[COUNT];
    scene_begin(&scene);
    for (unsigned i = 0; i < COUNT; i++) {
        char id[20];
        snprintf(id, sizeof id, "c%u", i);
        (void)start_as(&scene, id, (const char *const[]){"true", NULL}, 60000, 4096, &outcomes[i]);
    }
    for (unsigned i = 0; i < COUNT; i++) until_ended(&scene, &outcomes[i]);
    for (unsigned i = 0; i < COUNT; i++) expect(&outcomes[i], "many", PB__STATUS__PASSING, "");
    scene_end(&scene);
}

static void units(void) {
    static const struct {
        const char *output;
        int wait_status;
        Pb__Status status;
        const char *text;
    } rows[] = {
        {"LoadState=loaded\nActiveState=active\nSubState=running\n", 0, PB__STATUS__PASSING,
         "Service \"u\" is healthy"},
        {"LoadState=loaded\nActiveState=inactive\nSubState=dead\n", 0, PB__STATUS__CRITICAL,
         "service status: inactive (dead) - OS Service unhealthy"},
        {"LoadState=loaded\nActiveState=failed\nSubState=failed", 0, PB__STATUS__CRITICAL,
         "service status: failed (failed) - OS Service unhealthy"},
        {"LoadState=loaded\nActiveState=activating\nSubState=auto-restart\n", 0, PB__STATUS__WARNING,
         "service status: activating (auto-restart)"},
        {"LoadState=loaded\nActiveState=reloading\nSubState=reload\n", 0, PB__STATUS__WARNING,
         "service status: reloading (reload)"},
        {"LoadState=not-found\nActiveState=inactive\nSubState=dead\n", 0, PB__STATUS__CRITICAL,
         "service \"u\" is not known to systemd - OS Service unhealthy"},
        {"System has not been booted with systemd as init system (PID 1). Can't operate.\n", 256, PB__STATUS__CRITICAL,
         "systemd cannot be asked about service \"u\": System has not been booted with systemd as init "
         "system (PID 1). "
         "Can't operate."},
        {"ActiveState=active\n", 256, PB__STATUS__CRITICAL,
         "systemd cannot be asked about service \"u\": ActiveState=active"},
        {"", 0, PB__STATUS__CRITICAL, "systemd cannot be asked about service \"u\": "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct program_end end = {.wait_status = rows[i].wait_status, .output = slice_text(rows[i].output)};
        struct outcome outcome = {0};
        struct buffer text = {0};
        end.output_total = end.output.size;
        os_service_judge("u", &end, &outcome.status, &text);
        snprintf(outcome.output, sizeof outcome.output, "%.*s", (int)text.size, text.data);
        expect(&outcome, rows[i].output, rows[i].status, rows[i].text);
        buffer_free(&text);
    }
}

/* Through the real attempt: a systemctl of ours in PATH, and none at all. */
static void systemctl_is_asked(void) {
    char folder[] = "/tmp/coord-test-XXXXXX", command[600], *path = mem_strdup(getenv("PATH"));
    CHECK(mkdtemp(folder) != NULL);
    snprintf(command, sizeof command,
             "printf '#!/bin/sh\\n[ \"$*\" = \"show --property=LoadState,ActiveState,SubState -- "
             "web@1.service\" ] || exit 3\\n"
             "echo LoadState=loaded\\necho ActiveState=active\\necho SubState=running\\n' > %s/systemctl; "
             "chmod +x %s/systemctl",
             folder, folder);
    CHECK(system(command) == 0);
    for (int there = 1; there >= 0; there--) {
        struct scene scene;
        struct outcome outcome = {0};
        struct check_definition *d = check_definition_blank("c", "");
        d->kind = CHECK_OS_SERVICE;
        free(d->os_service);
        d->os_service = mem_strdup("web@1.service");
        d->timeout_ns = INT64_C(20000000000);
        CHECK(setenv("PATH", there ? folder : "/nowhere", 1) == 0);
        scene_begin(&scene);
        (void)run_start(&scene.runners, d, 4096, on_done, &outcome);
        check_definition_free(d);
        until_ended(&scene, &outcome);
        scene_end(&scene);
        expect(&outcome, "systemctl", there ? PB__STATUS__PASSING : PB__STATUS__CRITICAL,
               there ? "Service \"web@1.service\" is healthy"
                     : "systemd cannot be asked about service \"web@1.service\": exec: \"systemctl\": "
                       "executable file not "
                       "found in $PATH");
    }
    CHECK(setenv("PATH", path, 1) == 0);
    free(path);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

/* -- the number of a closed descriptor is another's soon -- */
struct neighbour {
    struct outcome *before;
    int ends[2];
    bool watched, heard;
    uv_poll_t poll;
};

static void on_heard(uv_poll_t *poll, int status, int events) {
    struct neighbour *neighbour = poll->data;
    CHECK(status == 0 && events == UV_READABLE);
    neighbour->heard = true;
    uv_poll_stop(poll);
}

/* Right after the program was killed, before the loop hears of its end. */
static void move_in(uv_prepare_t *prepare) {
    struct neighbour *neighbour = prepare->data;
    if (neighbour->watched || !neighbour->before->ended) return;
    CHECK(pipe(neighbour->ends) == 0);
    CHECK(uv_poll_init(prepare->loop, &neighbour->poll, neighbour->ends[0]) == 0);
    neighbour->poll.data = neighbour;
    uv_poll_start(&neighbour->poll, UV_READABLE, on_heard);
    neighbour->watched = true;
}

static void who_gets_the_number_is_left_alone(void) {
    struct scene scene;
    struct outcome outcome = {0};
    struct neighbour neighbour = {.before = &outcome};
    uv_prepare_t prepare;
    scene_begin(&scene);
    uv_prepare_init(&scene.loop, &prepare);
    prepare.data = &neighbour;
    uv_prepare_start(&prepare, move_in);
    (void)start(&scene, (const char *const[]){"sleep", "1000", NULL}, 300, 100, &outcome);
    until_ended(&scene, &outcome);
    while (!neighbour.watched || !list_empty(&scene.runners.programs)) uv_run(&scene.loop, UV_RUN_ONCE);
    CHECK(write(neighbour.ends[1], "x", 1) == 1);
    for (uint64_t begun_ms = clock_mono_ms(); !neighbour.heard && clock_mono_ms() - begun_ms < 60000;)
        uv_run(&scene.loop, UV_RUN_ONCE);
    CHECK(neighbour.heard);
    uv_close((uv_handle_t *)&neighbour.poll, NULL);
    uv_close((uv_handle_t *)&prepare, NULL);
    scene_end(&scene);
    close(neighbour.ends[0]);
    close(neighbour.ends[1]);
}

int main(void) {
    log_level_now = LOG_ERROR + 1;
    snprintf(own_mark, sizeof own_mark, "COORD_TEST_PROGRAMS=%d ", getpid());
    CHECK(setenv("COORD_TEST_PROGRAMS", strchr(own_mark, '=') + 1, 1) == 0);
    signal(SIGPIPE, SIG_IGN);                        /* as in the agent: programs are not to inherit it */
    an_agent_that_is_killed_leaves_nothing_behind(); /* forks: before there are threads */
    (void)run_shell("true", 20000, 10);              /* the pool's threads, the loop's descriptors */
    size_t descriptors = open_descriptors();
    exit_codes();
    what_cannot_be_started();
    the_last_bytes_are_kept();
    a_gigabyte_costs_nothing();
    what_never_ends_is_killed();
    children_are_left_behind();
    attempts_of_one_check_do_not_overlap();
    cancelled_at_any_moment();
    many_at_once();
    units();
    systemctl_is_asked();
    who_gets_the_number_is_left_alone();
    CHECK(open_descriptors() == descriptors);
    return 0;
}
