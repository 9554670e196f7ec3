/* JSON of budgets, as they are read and as events of a stream show them. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "base/message.h"
#include "http/api/quota_views.h"
#include "http/api/stream_views.h"
#include "kv/quota/quota.h"

static Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
static Pb__QuotaRecord record = PB__QUOTA_RECORD__INIT;
static Pb__QuotaBound bound = PB__QUOTA_BOUND__INIT;
static Pb__QuotaLease lease = PB__QUOTA_LEASE__INIT, *leases[] = {&lease};
static Pb__QuotaState state = PB__QUOTA_STATE__INIT;

static char *text(const char *constant) { return (char *)(uintptr_t)constant; }

static void setup(void) {
    definition.name = text("api"), definition.budget = 1000, definition.tokens = 100, definition.every_ms = 1000;
    cr_assert_eq(quota_definition_check(&definition, NULL), CO_OK);
    record.definition = &definition, record.spent = 5, record.leased = 20, record.stranded = 7;
    record.create_index = 3, record.defined_index = 4;
    lease.id = 8, lease.node = text("n1"), lease.session = text("s"), lease.balance = 20, lease.wants = 30;
    lease.priority = 4, lease.ttl_ms = 10000;
    state.record = &record, state.bound = &bound, state.leases = leases, state.n_leases = 1;
    state.capacity = 1000, state.available = 968, state.agents = 3, state.modify_index = 9;
}
TestSuite(quota_views, .init = setup);

static void expect(const struct message_member *members, const char *expected) {
    struct buffer out = {0};
    struct json_out json;
    json_out_init(&json, &out, false);
    message_json(&json, &state.base, members, NULL);
    cr_expect(slice_is(buffer_slice(&out), expected), "%.*s", (int)out.size, out.data);
    buffer_free(&out);
}

#define HEAD                                                                                                     \
    "{\"Name\":\"api\",\"Budget\":1000,\"Burst\":1000,\"Refill\":{\"Tokens\":100,\"Every\":\"1s\"},"             \
    "\"Mode\":\"lease\",\"LeaseTTL\":\"10s\",\"MaxLeaseFraction\":0.05,\"OnLoss\":\"closed\",\"Capacity\":1000," \
    "\"Available\":968,\"Spent\":5,\"Leased\":20,\"Slack\":0,\"Stranded\":7,\"Starving\":false,"
#define TAIL                                                                                                       \
    "\"WorstCaseOverAdmission\":0,\"Bound\":{\"Leases\":0,\"Drift\":0,\"LocalCaps\":0,\"Last\":0,\"HandOver\":0}," \
    "\"Agents\":3,\"DefinedIndex\":4,\"CreateIndex\":3,\"ModifyIndex\":9}"
#define LEASES                                                                                              \
    "\"Leases\":[{\"Owner\":\"n1\",\"Granted\":20,\"TTL\":\"10s\",\"ID\":8,\"Session\":\"s\",\"Wants\":30," \
    "\"Priority\":4}],"

Test(quota_views, a_budget_with_and_without_its_leases) {
    expect(quota_members_one, HEAD LEASES TAIL);
    expect(quota_members_listed, HEAD TAIL);
}

Test(quota_views, a_bounded_one_with_windows) {
    definition.tokens = definition.every_ms = definition.burst = 0, definition.window = PB__QUOTA_WINDOW__QUOTA_DAY;
    definition.mode = PB__QUOTA_MODE__QUOTA_BOUNDED, definition.offset_minutes = -570;
    definition.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, definition.local_cap = 12;
    definition.unknown_slack_given = true, definition.unknown_slack = 250000;
    state.available = -3, state.n_leases = 0;
    expect(quota_members_listed,
           "{\"Name\":\"api\",\"Budget\":1000,\"Refill\":{\"Window\":\"day\",\"Offset\":\"-09:30\"},"
           "\"Mode\":\"bounded\",\"LeaseTTL\":\"10s\",\"MaxLeaseFraction\":0.05,\"Drift\":0.01,\"LowWatermark\":0.1,"
           "\"UnknownSlack\":0.25,\"OnLoss\":\"open\",\"LocalCap\":12,\"Capacity\":1000,"
           "\"Available\":-3,\"Spent\":5,\"Leased\":20,\"Slack\":0,\"Stranded\":7,\"Starving\":false," TAIL);
}

Test(quota_views, owners_hot_keys_and_splits) {
    Pb__QuotaHotKey hot = PB__QUOTA_HOT_KEY__INIT, *hots[] = {&hot};
    Pb__QuotaSplit split = PB__QUOTA_SPLIT__INIT, *splits[] = {&split};
    Pb__QuotaLostOwner loss = PB__QUOTA_LOST_OWNER__INIT, *losses[] = {&loss};
    uint64_t amounts[] = {500, 500}, active[] = {8, 9};
    char *members[] = {text("n1"), text("n2")};
    definition.mode = PB__QUOTA_MODE__QUOTA_OWNER, definition.service = text("gw"), definition.split = 2;
    definition.on_loss = PB__QUOTA_LOSS__QUOTA_LAST;
    hot.key = split.key = message_bytes(slice_text("k")), hot.rate = 1.5;
    split.amounts = amounts, split.n_amounts = 2;
    record.splits = splits, record.n_splits = 1;
    record.active_members = members, record.n_active_members = 2, record.epoch = 12, record.active = 11;
    loss.node = text("n3"), loss.index = 10, loss.active = 9;
    record.losses = losses, record.n_losses = 1, record.losses_before = 4;
    record.active_leases = active, record.n_active_leases = 2;
    lease.acked = 11;
    lease.hot = hots, lease.n_hot = 1, lease.reported = 70, lease.balance = 0;
    record.leased = record.stranded = record.spent = 0;
    expect(quota_members_one,
           "{\"Name\":\"api\",\"Budget\":1000,\"Burst\":1000,\"Refill\":{\"Tokens\":100,\"Every\":\"1s\"},"
           "\"Mode\":\"owner\",\"LeaseTTL\":\"10s\",\"MaxLeaseFraction\":0.05,\"OnLoss\":\"last\",\"LastFor\":\"1m0s\","
           "\"Service\":\"gw\",\"Split\":2,\"Capacity\":1000,\"Available\":968,\"Spent\":70,\"Leased\":0,\"Slack\":0,"
           "\"Stranded\":0,\"Starving\":false,\"Epoch\":12,\"ActiveEpoch\":11,\"ActiveMembers\":[\"n1\",\"n2\"],"
           "\"Members\":[{\"Node\":\"n1\",\"Lease\":8,\"Counts\":true,\"Acknowledged\":11,\"Admitted\":70}],"
           "\"Losses\":[{\"Node\":\"n3\",\"Index\":10,\"ActiveEpoch\":9}],\"LossesBefore\":4,"
           "\"HotKeys\":[{\"Key\":\"k\",\"Rate\":1.5,\"Owner\":\"n1\"}],\"Splits\":[{\"Key\":\"k\",\"Amounts\":[500,"
           "500]}],"
           "\"Leases\":[{\"Owner\":\"n1\",\"Granted\":0,\"TTL\":\"10s\",\"ID\":8,\"Session\":\"s\",\"Wants\":30,"
           "\"Priority\":4}]," TAIL);
}

Test(quota_views, events_of_a_stream) {
    struct arena arena = {0};
    struct buffer out = {0};
    Pb__StreamPosition position = PB__STREAM_POSITION__INIT;
    Pb__StreamEvent changed = PB__STREAM_EVENT__INIT, gone = PB__STREAM_EVENT__INIT, *events[] = {&changed, &gone};
    Pb__StreamResult result = PB__STREAM_RESULT__INIT;
    position.index = 9;
    changed.kind = gone.kind = PB__STREAM_KIND__STREAM_QUOTA;
    changed.name = gone.name = message_bytes(slice_text("api"));
    changed.position = gone.position = result.position = &position;
    changed.record = message_bytes(message_pack(&arena, &state.base));
    gone.gone = true;
    result.events = events, result.n_events = 2;
    cr_assert(stream_events_append(&out, &result, false, &arena));
    cr_expect(slice_is(buffer_slice(&out), "event: quota\nid: 9\ndata: " HEAD LEASES TAIL
                                           "\n\nevent: quota\nid: 9\ndata: {\"Name\":\"api\",\"Deleted\":true}\n\n"),
              "%.*s", (int)out.size, out.data);
    buffer_free(&out), arena_free(&arena);
}
