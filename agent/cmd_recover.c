/* coord operator recover, for a cluster that lost its majority for good: makes one of the remaining servers go on
 * without the others. Works on stopped data folders. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/identity.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"
#include "consensus/recover.h"
#include "registry/operator.h"
#include "rpc/wire/address.h"

struct survivor {
    const char *folder;
    int lock_fd;
    struct disk *disk;
    struct recover_report report;
};

/* -- folders ------------------------------------------------------------------------------------------------------ */
static void survivor_close(struct survivor *survivor) {
    if (survivor->disk) disk_posix_close(survivor->disk);
    if (survivor->lock_fd >= 0) close(survivor->lock_fd);
    survivor->disk = NULL, survivor->lock_fd = -1;
}

static int survivor_open(struct survivor *survivor, const char *folder, struct fault *fault) {
    char path[4096];
    struct stat info;
    *survivor = (struct survivor){.folder = folder, .lock_fd = -1};
    snprintf(path, sizeof path, "%s/raft", folder);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return fault_set(fault, CO_NOTFOUND, "%s is not the data folder of a server", folder);
    struct fault inner = {0};
    int rv = identity_lock(folder, false, &survivor->lock_fd, &inner);
    if (rv != CO_OK && rv != CO_NOTFOUND) return fault_set(fault, rv, "%s", inner.text);
    /* A copy of a folder may lack that file; the log's own lock counts too. */
    rv = disk_posix_open(path, &survivor->disk);
    if (rv == CO_OK) return CO_OK;
    survivor_close(survivor);
    return fault_set(fault, rv, "%s: %s", path, co_strerror(rv));
}

/* Puts the folder's name before a fault of something inside it. */
static int in_folder(const struct survivor *survivor, int rv, const struct fault *inner, struct fault *fault) {
    return rv == CO_OK
               ? rv
               : fault_set(fault, rv, "%.400s: %.500s", survivor->folder, inner->code ? inner->text : co_strerror(rv));
}

/* -- showing ------------------------------------------------------------------------------------------------------ */
static void show_members(const struct recover_report *report) {
    for (uint32_t i = 0; i < report->members.count; i++) {
        const struct raft_member *member = &report->members.member[i];
        printf("  %-16s%016" PRIx64 "@%s%s%s\n", i ? "" : "members", member->id, member->address,
               member->voter ? ", votes" : ", does not vote", member->id == report->id ? " (this one)" : "");
    }
}

static void show(const struct survivor *survivor) {
    const struct recover_report *report = &survivor->report;
    printf("%s\n  %-16s%016" PRIx64 "\n  %-16sindex %" PRIu64 ", term %" PRIu64 "\n  %-16s%" PRIu64, survivor->folder,
           "id", report->id, "last entry", report->last_index, report->last_term, "term", report->term);
    if (report->vote) printf(", voted for %016" PRIx64, report->vote);
    printf("\n");
    if (report->snapshot_index) printf("  %-16sup to index %" PRIu64 "\n", "snapshot", report->snapshot_index);
    if (report->torn_bytes)
        printf("  %-16s%" PRIu64 " bytes of a write that never ended; they are cut off\n", "torn end",
               report->torn_bytes);
    show_members(report);
    const struct raft_recoveries *recoveries = &report->members.recoveries;
    for (uint32_t i = 0; i < recoveries->count; i++)
        printf("  %-16sby an operator at index %" PRIu64 ", term %" PRIu64 "\n", i ? "" : "recovered",
               recoveries->item[i].index, recoveries->item[i].term);
    if (report->members.recovered_index && recoveries->count == 0)
        printf("  %-16sby an operator at index %" PRIu64 "\n", "recovered", report->members.recovered_index);
}

static bool further(const struct recover_report *a, const struct recover_report *b) {
    return a->last_term != b->last_term ? a->last_term > b->last_term : a->last_index > b->last_index;
}

/* The recovery by which `a` went on from a log that lacked something that `b` may have committed, so that the ends of
 * their logs cannot be compared. NULL: there is none. */
static const struct raft_recovery *went_on_without(const struct recover_report *a, const struct recover_report *b) {
    return raft_recovery_ahead(&b->members, b->last_index, b->last_term, &a->members.recoveries);
}

static bool parted(const struct recover_report *a, const struct recover_report *b) {
    return went_on_without(a, b) || went_on_without(b, a);
}

static const struct survivor *furthest(const struct survivor *survivors, size_t count) {
    const struct survivor *best = &survivors[0];
    for (size_t i = 1; i < count; i++)
        if (further(&survivors[i].report, &best->report)) best = &survivors[i];
    return best;
}

static unsigned quorum_of(const struct survivor *survivor) {
    return raft_members_voters(&survivor->report.members) / 2 + 1;
}

static size_t voters_among(const struct survivor *survivors, size_t count, const struct survivor *of) {
    size_t voters = 0;
    for (size_t i = 0; i < count; i++) {
        const struct raft_member *member = raft_members_find(&of->report.members, survivors[i].report.id);
        voters += member && member->voter;
    }
    return voters;
}

/* Are both servers of one cluster? Such servers know each other, or have known a third one. */
static bool related(const struct recover_report *a, const struct recover_report *b) {
    for (uint32_t i = 0; i < a->members.count; i++)
        if (a->members.member[i].id == b->id || raft_members_find(&b->members, a->members.member[i].id)) return true;
    return raft_members_find(&b->members, a->id) != NULL;
}

/* Refuses servers of different clusters, because the ends of their logs cannot be compared. */
static int check_related(const struct survivor *survivors, size_t count, struct fault *fault) {
    for (size_t i = 1; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (survivors[i].report.id == survivors[k].report.id)
                return fault_set(fault, CO_INVALID, "%.90s and %.90s are of one server: one of them is a copy",
                                 survivors[k].folder, survivors[i].folder);
    for (size_t i = 1; i < count; i++)
        if (!related(&survivors[0].report, &survivors[i].report))
            return fault_set(fault, CO_INVALID,
                             "%.90s and %.90s have no member in common: they are of different clusters, or each was "
                             "recovered by itself",
                             survivors[0].folder, survivors[i].folder);
    return CO_OK;
}

/* Compares servers of one history: prints which has the longest log, and whether they are a majority that needs no
 * recovery. */
static const struct survivor *compare(const struct survivor *survivors, size_t count) {
    const struct survivor *best = furthest(survivors, count);
    printf("\n");
    if (count > 1)
        printf("The furthest is %s: index %" PRIu64 ", term %" PRIu64 ".\n", best->folder, best->report.last_index,
               best->report.last_term);
    for (size_t i = 0; i < count && count > 1; i++) {
        const struct recover_report *report = &survivors[i].report;
        if (&survivors[i] == best) continue;
        if (!further(&best->report, report)) printf("%s has the same end.\n", survivors[i].folder);
        else if (best->report.last_index > report->last_index)
            printf("%s lacks at least the %" PRIu64 " entries behind index %" PRIu64 ": going on from it loses them.\n",
                   survivors[i].folder, best->report.last_index - report->last_index, report->last_index);
        else
            printf(
                "%s ends in an older term: what is behind its last common entry with the furthest would be "
                "lost.\n",
                survivors[i].folder);
    }
    if (voters_among(survivors, count, best) >= quorum_of(best))
        printf(
            "These are a majority (%u of %u voters): started again they go on by themselves, and lose "
            "nothing. Do not recover.\n",
            quorum_of(best), raft_members_voters(&best->report.members));
    return best;
}

/* Moves the servers that share the history of the first one to the front; returns their number. */
static size_t gather(struct survivor *survivors, size_t count) {
    size_t same = 1;
    for (size_t i = 1; i < count; i++) {
        if (parted(&survivors[0].report, &survivors[i].report)) continue;
        struct survivor one = survivors[i];
        survivors[i] = survivors[same];
        survivors[same++] = one;
    }
    return same;
}

static void tell_parted(const struct survivor *survivors, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            const struct raft_recovery *recovery =
                i == k ? NULL : went_on_without(&survivors[i].report, &survivors[k].report);
            if (recovery)
                printf("%s was recovered at index %" PRIu64
                       " from a log that lacked something that %s has, and may have been acknowledged.\n",
                       survivors[i].folder, recovery->index, survivors[k].folder);
        }
    printf(
        "These are different histories, which cannot be joined. Somebody who knows what was written has to decide "
        "which of them goes on.\nEntries that only the others have are lost. If the one that goes on was recovered, "
        "these are the entries that it lacked then; if not, those that were written since. Empty the folders of the "
        "others.\n");
}

static void advise(struct survivor *survivors, size_t count) {
    const struct survivor *best = NULL;
    size_t histories = 0;
    for (size_t at = 0, same; at < count; at += same, histories++) {
        same = gather(survivors + at, count - at);
        if (same < count) {
            printf("\nOf one history:");
            for (size_t i = 0; i < same; i++) printf(" %s", survivors[at + i].folder);
        }
        best = compare(survivors + at, same);
    }
    if (histories > 1) {
        printf("\n");
        tell_parted(survivors, count);
    }
    printf(
        "What would be lost: every entry that only the servers missing here had. Such entries may have been "
        "acknowledged to clients; that\n"
        "cannot be seen from here. What is in the log that goes on is kept, also what was never "
        "acknowledged.\n"
        "The missing servers must never run with their old data again: two of them could go on as a cluster "
        "of their own.\n\n"
        "Nothing was changed. To go on from %s alone: coord operator recover -data-dir=%s -yes\n",
        histories > 1 ? "one of them" : "it", histories > 1 ? "DIR" : best->folder);
}

/* -- doing -------------------------------------------------------------------------------------------------------- */
static bool is_address(const char *text) {
    char name[ADDRESS_MAX], host[ADDRESS_MAX], port[8];
    struct sockaddr_storage found;
    return address_complete(text, 1, name) && strcmp(name, text) == 0 && address_split(text, host, port) &&
           address_ip(host, port, &found);
}

/* Parses ID@ADDRESS of a server that the survivor knows. An unknown id is refused, because after a mistyped one the
 * cluster would wait for a server that does not exist, and refuse the right one for good. The address may differ from
 * the former one. */
static int voter_parse(const char *text, const struct raft_members *known, struct raft_member *voter,
                       struct fault *fault) {
    const char *at = strchr(text, '@');
    size_t digits = strspn(text, "0123456789abcdefABCDEF");
    *voter = (struct raft_member){.voter = true};
    if (!at || digits != (size_t)(at - text) || digits == 0 || digits > 16 || !is_address(at + 1) ||
        strlen(at + 1) >= sizeof voter->address)
        return fault_set(fault, CO_INVALID, "-voter: \"%.80s\" is not ID@IP:PORT, as a survivor's members are printed",
                         text);
    voter->id = strtoull(text, NULL, 16);
    if (!raft_members_find(known, voter->id))
        return fault_set(fault, CO_INVALID, "-voter: %.16s is none of the members that this server knows", text);
    memcpy(voter->address, at + 1, strlen(at + 1) + 1);
    return CO_OK;
}

static struct raft_data *removed_command(uint64_t id) {
    Pb__ServerRemovedCommand message = PB__SERVER_REMOVED_COMMAND__INIT;
    message.id = id;
    struct raft_data *data = raft_data_new(NULL, 2 + pb__server_removed_command__get_packed_size(&message));
    data->bytes[0] = OPERATOR_SERVER_REMOVED, data->bytes[1] = 1;
    pb__server_removed_command__pack(&message, (uint8_t *)data->bytes + 2);
    return data;
}

/* Members that do not go on are remembered as removed, so that they are not taken in again with their old data. */
static size_t lost_members(const struct recover_report *report, const struct recover_plan *plan,
                           struct raft_data **commands) {
    size_t count = 0;
    for (uint32_t i = 0; i < report->members.count; i++) {
        uint64_t id = report->members.member[i].id;
        bool stays = id == report->id;
        for (size_t k = 0; k < plan->voter_count; k++) stays |= plan->voters[k].id == id;
        if (!stays) commands[count++] = removed_command(id);
    }
    return count;
}

static int recover(struct survivor *survivor, const struct cmd_list *voters, struct fault *fault) {
    struct raft_member members[CMD_LIST_MAX];
    struct raft_data *commands[RAFT_MEMBERS_MAX];
    struct fault inner = {0};
    for (size_t i = 0; i < voters->count; i++)
        if (voter_parse(voters->items[i], &survivor->report.members, &members[i], fault) != CO_OK) return fault->code;
    struct recover_plan plan = {.voters = members, .voter_count = voters->count, .commands = commands};
    plan.command_count = lost_members(&survivor->report, &plan, commands);
    int rv = recover_write(survivor->disk, &plan, &survivor->report, &inner);
    for (size_t i = 0; i < plan.command_count; i++) raft_data_unref(commands[i]);
    if (rv != CO_OK) return in_folder(survivor, rv, &inner, fault);
    printf("Recovered at index %" PRIu64 ", term %" PRIu64 ". ", survivor->report.members_index, survivor->report.term);
    if (voters->count)
        printf("Start this server and the voters named: a majority of the %zu has to be there.\n", voters->count + 1);
    else printf("Start this server: it leads alone. Others join with empty data folders.\n");
    return CO_OK;
}

/* -- the command -------------------------------------------------------------------------------------------------- */
static int look_all(struct survivor *survivors, size_t *opened, const struct cmd_list *folders, struct fault *fault) {
    for (; *opened < folders->count; ++*opened) {
        struct survivor *survivor = &survivors[*opened];
        struct fault inner = {0};
        int rv = survivor_open(survivor, folders->items[*opened], fault);
        if (rv != CO_OK) return rv;
        rv = recover_look(survivor->disk, &survivor->report, &inner);
        if (rv == CO_OK) {
            show(survivor);
            continue;
        }
        survivor_close(survivor);
        return in_folder(survivor, rv, &inner, fault);
    }
    return CO_OK;
}

int cmd_recover(int argc, char **argv) {
    static const char usage[] =
        "coord operator recover -data-dir=DIR [-data-dir=DIR ...] | -data-dir=DIR -yes [-voter=ID@IP:PORT "
        "...]";
    struct cmd_list folders = {0}, voters = {0};
    bool yes = false;
    const struct cmd_flag flags[] = {
        {"data-dir", CMD_LIST, &folders, "data folder of a stopped server that is left; several, to compare them"},
        {"yes", CMD_BOOL, &yes, "do it: this server goes on without those that were lost"},
        {"voter", CMD_LIST, &voters, "ID@IP:PORT of another survivor that goes on with it"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest);
    if (code >= 0) return code;
    if (*rest || folders.count == 0) return cmd_wrong(usage, *rest ? "no argument is wanted" : "-data-dir is wanted");
    if (yes && folders.count > 1) return cmd_wrong(usage, "-yes is for one -data-dir: the server that goes on");
    if (!yes && voters.count) return cmd_wrong(usage, "-voter goes with -yes");
    struct survivor survivors[CMD_LIST_MAX];
    struct fault fault = {0};
    size_t opened = 0;
    int rv = look_all(survivors, &opened, &folders, &fault);
    if (rv == CO_OK) rv = check_related(survivors, opened, &fault);
    if (rv == CO_OK && yes) rv = recover(&survivors[0], &voters, &fault);
    else if (rv == CO_OK) advise(survivors, opened);
    for (size_t i = 0; i < opened; i++) survivor_close(&survivors[i]);
    if (rv != CO_OK) { /* nothing was changed */
        (void)cmd_failed("recovering", &fault);
        return CMD_EXIT_REFUSED;
    }
    return yes ? 0 : 1;
}
