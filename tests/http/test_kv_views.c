/* JSON of keys and sessions: the bytes that a real Consul 1.8.7 answers. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "http/api/kv_views.h"

static void expect_entry(const Pb__KvEntry *entry, bool pretty, const char *expected) {
    struct buffer out = {0};
    struct json_out json;
    json_out_init(&json, &out, pretty);
    http_kv_entry(&json, entry);
    cr_expect(slice_is(buffer_slice(&out), expected), "%.*s", (int)out.size, out.data);
    buffer_free(&out);
}

static void expect_session(const Pb__Session *session, const char *expected) {
    struct buffer out = {0};
    struct json_out json;
    json_out_init(&json, &out, false);
    http_session(&json, session);
    cr_expect(slice_is(buffer_slice(&out), expected), "%.*s", (int)out.size, out.data);
    buffer_free(&out);
}

static ProtobufCBinaryData bytes(const char *text, size_t size) {
    return (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)text};
}

Test(kv_views, entry) {
    char session[] = "1c87320d-a546-2c38-bc82-22c205076d51";
    Pb__KvEntry entry = PB__KV_ENTRY__INIT;
    entry.key = bytes("<&>\xff", 4);
    entry.create_index = 186, entry.modify_index = 18446744073709551615u;
    expect_entry(&entry, false,
                 "{\"LockIndex\":0,\"Key\":\"\\u003c\\u0026\\u003e\\ufffd\",\"Flags\":0,\"Value\":null,"
                 "\"CreateIndex\":186,"
                 "\"ModifyIndex\":18446744073709551615}");
    entry.key = bytes("lk", 2);
    entry.value = bytes("a\0\xff", 3);
    entry.flags = 18446744073709551615u;
    entry.lock_index = 3;
    entry.session = session;
    expect_entry(&entry, false,
                 "{\"LockIndex\":3,\"Key\":\"lk\",\"Flags\":18446744073709551615,\"Value\":\"YQD/\","
                 "\"Session\":\"1c87320d-a546-2c38-bc82-22c205076d51\",\"CreateIndex\":186,\"ModifyIndex\":"
                 "18446744073709551615}");
    Pb__KvEntry plain = PB__KV_ENTRY__INIT;
    plain.key = bytes("a", 1);
    plain.value = bytes("one", 3);
    plain.create_index = plain.modify_index = 16;
    expect_entry(&plain, true,
                 "{\n    \"LockIndex\": 0,\n    \"Key\": \"a\",\n    \"Flags\": 0,\n    \"Value\": "
                 "\"b25l\",\n    \"CreateIndex\": 16,\n"
                 "    \"ModifyIndex\": 16\n}");
}

Test(kv_views, session) {
    char id[] = "9a245c1b-8c80-ffbb-9cd4-cfc584acee21", name[] = "nn", node[] = "n1", ttl[] = "15.0s";
    char serf[] = "serfHealth", check[] = "c1", *node_checks[] = {serf, check}, *service_checks[] = {check},
         *checks[] = {check};
    Pb__Session session = PB__SESSION__INIT;
    session.id = id, session.name = name, session.node = node, session.ttl = ttl;
    session.lock_delay_ns = 1000000;
    session.create_index = session.modify_index = 29;
    expect_session(&session,
                   "{\"ID\":\"9a245c1b-8c80-ffbb-9cd4-cfc584acee21\",\"Name\":\"nn\",\"Node\":\"n1\","
                   "\"LockDelay\":1000000,"
                   "\"Behavior\":\"release\",\"TTL\":\"15.0s\",\"NodeChecks\":[],\"ServiceChecks\":null,"
                   "\"CreateIndex\":29,\"ModifyIndex\":29}");
    session.delete_behavior = true;
    session.node_checks = node_checks, session.n_node_checks = 2;
    session.service_checks = service_checks, session.n_service_checks = 1;
    session.checks = checks, session.n_checks = 1;
    expect_session(&session,
                   "{\"ID\":\"9a245c1b-8c80-ffbb-9cd4-cfc584acee21\",\"Name\":\"nn\",\"Node\":\"n1\","
                   "\"LockDelay\":1000000,"
                   "\"Behavior\":\"delete\",\"TTL\":\"15.0s\",\"NodeChecks\":[\"serfHealth\",\"c1\"],"
                   "\"ServiceChecks\":[{\"ID\":\"c1\",\"Namespace\":\"\"}],\"Checks\":[\"c1\"],"
                   "\"CreateIndex\":29,\"ModifyIndex\":29}");
}
