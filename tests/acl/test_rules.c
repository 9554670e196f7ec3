#include "acl/rules.h"

#include <criterion/criterion.h>

#include "base/check.h"

/* "key_prefix a/ list; acl write", as the rules were read. */
static void print_rules(const struct rules *rules, struct buffer *out) {
    for (size_t i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->items[i];
        buffer_printf(out, "%s%s%s", i ? "; " : "", access_resource_name(rule->resource),
                      rule->prefix ? "_prefix" : "");
        if (access_resource_named(rule->resource)) buffer_printf(out, " '%.*s'", (int)rule->name.size, rule->name.data);
        buffer_printf(out, " %s", access_level_name(rule->level));
    }
    buffer_append_byte(out, '\0');
}

struct row {
    const char *text, *wanted;
};

static void expect_taken(const struct row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct arena arena = {0};
        struct buffer is = {0};
        struct rules rules;
        struct fault fault = {0};
        cr_expect_eq(rules_parse(slice_text(rows[i].text), &arena, &rules, &fault), CO_OK, "%s: %s", rows[i].text,
                     fault.text);
        print_rules(&rules, &is);
        cr_expect_str_eq(is.data, rows[i].wanted, "%s", rows[i].text);
        cr_expect_eq(rules.warning_count, 0, "%s: %s", rows[i].text, rules.warning_count ? rules.warnings[0] : "");
        buffer_free(&is);
        arena_free(&arena);
    }
}

Test(rules, hcl) {
    static const struct row rows[] = {
        {"", ""},
        {" \n# nothing\n", ""},
        {"acl = \"read\"", "acl read"},
        {"acl = \"write\"\nkeyring = \"deny\"\noperator = \"read\"", "acl write; keyring deny; operator read"},
        {"key \"a/b\" { policy = \"write\" }", "key 'a/b' write"},
        {"key_prefix \"\" { policy = \"list\" }\nkey \"a\" { policy = \"list\" }", "key_prefix '' list; key 'a' list"},
        {"key_prefix \"a\" { policy = \"read\" }\nkey_prefix \"b\" { policy = \"deny\" }",
         "key_prefix 'a' read; key_prefix 'b' deny"},
        {"service web { policy = \"write\" }", "service 'web' write"},
        {"service = { \"web\" = { policy = \"write\" } }", "service 'web' write"},
        {"agent \"n\" { policy = \"read\" } agent_prefix \"n\" { policy = \"deny\" }",
         "agent 'n' read; agent_prefix 'n' deny"},
        {"event \"e\" { policy = \"write\" } event_prefix \"e\" { policy = \"read\" }",
         "event 'e' write; event_prefix 'e' read"},
        {"node \"n\" { policy = \"write\" } node_prefix \"\" { policy = \"read\" }",
         "node 'n' write; node_prefix '' read"},
        {"query \"q\" { policy = \"write\" } query_prefix \"\" { policy = \"read\" }",
         "query 'q' write; query_prefix '' read"},
        {"session \"s\" { policy = \"write\" } session_prefix \"\" { policy = \"read\" }",
         "session 's' write; session_prefix '' read"},
        {"lock \"l\" { policy = \"write\" } lock_prefix \"\" { policy = \"read\" }",
         "lock 'l' write; lock_prefix '' read"},
        {"quota \"l\" { policy = \"write\" } quota_prefix \"\" { policy = \"read\" }",
         "quota 'l' write; quota_prefix '' read"},
        {"rollout \"l\" { policy = \"write\" } rollout_prefix \"\" { policy = \"read\" }",
         "rollout 'l' write; rollout_prefix '' read"},
        /* Words have no case; names do. */
        {"KEY \"A\" { Policy = \"read\" }\nkey_Prefix \"B\" { POLICY = \"read\" }",
         "key 'A' read; key_prefix 'B' read"},
        /* The same once more is no conflict. Names of services have no case. */
        {"key \"a\" { policy = \"read\" } key \"a\" { policy = \"read\" }", "key 'a' read"},
        {"service \"Web\" { policy = \"read\" } service \"web\" { policy = \"read\" }", "service 'Web' read"},
        {"key \"Web\" { policy = \"read\" } key \"web\" { policy = \"deny\" }", "key 'Web' read; key 'web' deny"},
        {"key \"a\" { policy = \"read\" } key_prefix \"a\" { policy = \"deny\" } node \"a\" { policy = \"write\" }",
         "key 'a' read; key_prefix 'a' deny; node 'a' write"},
        {"key \"policy\" { policy = \"read\" }", "key 'policy' read"},
        {"# for web\nkey \"a\" { # b\n policy = \"read\" // c\n}\n", "key 'a' read"},
    };
    expect_taken(rows, ARRAY_COUNT(rows));
}

Test(rules, json) {
    static const struct row rows[] = {
        {"{}", ""},
        {" \n{\"acl\": \"read\"}", "acl read"},
        {"{\"key_prefix\": {\"\": {\"policy\": \"read\"}}}", "key_prefix '' read"},
        {"{\"key\": {\"a\": {\"policy\": \"list\"}, \"b\": {\"policy\": \"write\"}}, \"operator\": \"read\"}",
         "key 'a' list; key 'b' write; operator read"},
        {"{\"key_prefix\": [{\"\": [{\"policy\": \"read\"}]}]}", "key_prefix '' read"},
        {"{\"service\": [{\"a\": {\"policy\": \"read\"}}, {\"b\": [{\"policy\": \"write\"}]}]}",
         "service 'a' read; service 'b' write"},
        {"{\"key\": []}", ""},
        {"{\"key\": {\"policy\": {\"policy\": \"read\"}}}", "key 'policy' read"},
    };
    expect_taken(rows, ARRAY_COUNT(rows));
}

Test(rules, refused) {
    static const struct row rows[] = {
        {"keyz \"a\" { policy = \"read\" }", "unknown word \"keyz\" (nearest: \"key\") at line 1, column 1"},
        {"acl = \"read\"\n  service_prefx \"\" { policy = \"read\" }",
         "unknown word \"service_prefx\" (nearest: \"service_prefix\") at line 2, column 3"},
        {"acl_prefix \"\" { policy = \"read\" }",
         "unknown word \"acl_prefix\" (nearest: \"key_prefix\" or \"lock_prefix\") at line 1, column 1"},
        {"xyzzy \"a\" {}", "unknown word \"xyzzy\" at line 1, column 1"},
        {"_prefix \"a\" {}", "unknown word \"_prefix\" (nearest: \"key_prefix\") at line 1, column 1"},
        {"key { policy = \"read\" }", "key has no name at line 1, column 7"},
        {"key {}", "key has no name at line 1, column 1"},
        {"service_prefix { policy = \"read\" intentions = \"read\" }",
         "service_prefix has no name at line 1, column 18"},
        {"key \"a\" = { policy = \"read\" }",
         "HCL: \"{\" is missing: behind labels stands no \"=\" at line 1, column 9"},
        {"key = \"read\"", "key needs a block with a name, at line 1, column 1"},
        {"key = [1]", "key needs a block with a name, at line 1, column 1"},
        {"key \"a\" {}", "key \"a\" has no policy at line 1, column 5"},
        {"key \"a\" { polcy = \"read\" }",
         "unknown word \"polcy\" in key \"a\" (nearest: \"policy\") at line 1, column 11"},
        {"key \"a\" \"b\" { policy = \"read\" }", "unknown word \"b\" in key \"a\" at line 1, column 9"},
        {"key \"a\" { intentions = \"read\" }", "unknown word \"intentions\" in key \"a\" at line 1, column 11"},
        {"session \"a\" {\n policy = \"read\" sentinel { code = \"\" } }",
         "unknown word \"sentinel\" in session \"a\" at line 2, column 18"},
        {"key \"a\" { policy = \"rea\" }", "unknown level \"rea\" (nearest: \"read\") at line 1, column 11"},
        {"key \"a\" { policy = \"Read\" }", "unknown level \"Read\" (nearest: \"read\") at line 1, column 11"},
        {"service \"a\" { policy = \"lis\" }", "unknown level \"lis\" at line 1, column 15"},
        {"key \"a\" { policy = \"\" }", "unknown level \"\" at line 1, column 11"},
        {"key \"a\" { policy = true }", "key \"a\" needs a level as text, as \"read\", at line 1, column 11"},
        {"service \"a\" { policy = \"list\" }", "\"list\" is a level of keys only at line 1, column 15"},
        {"node_prefix \"\" { policy = \"list\" }", "\"list\" is a level of keys only at line 1, column 18"},
        {"operator = \"list\"", "\"list\" is a level of keys only at line 1, column 1"},
        {"operator { policy = \"read\" }", "operator needs a level as text, as \"read\", at line 1, column 1"},
        {"acl = [\"read\"]", "acl needs a level as text, as \"read\", at line 1, column 1"},
        {"key \"a\" { policy = \"read\" }\nkey \"a\" { policy = \"write\" }",
         "key \"a\" has another level before at line 2, column 11"},
        {"node \"A\" { policy = \"read\" }\nnode \"a\" { policy = \"deny\" }",
         "node \"a\" has another level before at line 2, column 12"},
        {"acl = \"read\"\nACL = \"deny\"", "acl has another level before at line 2, column 1"},
        {"key \"a\" { policy = \"read\" Policy = \"deny\" }",
         "key \"a\" has another level before at line 1, column 27"},
        {"acl = \"read\"\nacl = \"read\"", "HCL: this name stands a second time: \"acl\" at line 2, column 1"},
        {"policy: \"read\"", "HCL: a value stands behind \"=\", not \":\" at line 1, column 7"},
        {"acl = \"read\";", "HCL: unexpected character \";\" at line 1, column 13"},
        {"key <<E\na\nE\n{ policy = \"read\" }",
         "HCL: neither \"=\" nor \"{\" behind the name \"key\" at line 1, column 1"},
        {"\xef\xbb\xbf"
         "acl = \"read\"",
         "HCL: a byte order mark at line 1, column 1"},
        {"key \"a\" { policy = \"read\"", "HCL: \"{\" without its \"}\" at line 1, column 9"},
        {"{\"key\": {\"a\": {\"policy\": \"read\"", "JSON: unexpected end of data at line 1, column 32"},
        {"{\"acl\": \"read\"} x", "JSON: unexpected character at line 1, column 17"},
        {"{\"keyz\": {\"a\": {\"policy\": \"read\"}}}", "unknown word \"keyz\" (nearest: \"key\") at line 1, column 2"},
        {"{\"key\": {\"policy\": \"read\"}}", "key has no name at line 1, column 10"},
        {"{\"key\": {}}", "key has no name at line 1, column 2"},
        {"{\"key\": null}", "key needs a block with a name, at line 1, column 2"},
        {"{\"key\": {\"a\": null}}", "key \"a\" has no policy at line 1, column 10"},
        {"{\"key\": {\"a\": []}}", "key \"a\" has no policy at line 1, column 10"},
        {"{\"key\": [[{\"a\": []}]]}", "key needs a block with a name, at line 1, column 2"},
        {"{\"key\": {\n\"a\": {\"policy\": \"wrte\"}}}",
         "unknown level \"wrte\" (nearest: \"write\") at line 2, column 7"},
        {"{\"key\": [{\"a\": {\"policy\": \"read\"}},\n {\"a\": {\"policy\": \"deny\"}}]}",
         "key \"a\" has another level before at line 2, column 9"},
        {"{\"key\": {\"a\": {\"policy\": \"read\"}, \"a\": {\"policy\": \"read\"}}}",
         "JSON: the key \"a\" stands a second time in its object, at line 1, column 35"},
        {"{\"acl\": 1}", "acl needs a level as text, as \"read\", at line 1, column 2"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct arena arena = {0};
        struct rules rules;
        struct fault fault = {0};
        cr_expect_eq(rules_parse(slice_text(rows[i].text), &arena, &rules, &fault), CO_INVALID, "%s", rows[i].text);
        cr_expect_eq(fault.code, CO_INVALID);
        cr_expect_str_eq(fault.text, rows[i].wanted, "%s: %s", rows[i].text, fault.text);
        arena_free(&arena);
    }
}

Test(rules, consul_words_without_effect) {
    static const char text[] =
        "mesh = \"write\"\n"
        "peering = \"read\"\n"
        "service \"web\" {\n"
        "  policy = \"write\"\n"
        "  intentions = \"read\"\n"
        "}\n"
        "service \"api\" { policy = \"read\" intentions = \"deny\" }\n"
        "key \"a\" { policy = \"write\" sentinel { code = \"main = rule { true }\" } }\n"
        "namespace \"x\" { key_prefix \"\" { policy = \"write\" } }\n"
        "namespace_prefix \"\" {}\n"
        "partition \"default\" { node \"n\" { policy = \"write\" } }\n"
        "partition_prefix \"\" {}\n"
        "identity \"web\" { policy = \"write\" }\n"
        "identity_prefix \"\" { policy = \"read\" }\n";
    static const char *const warnings[] = {
        "\"mesh\" at line 1, column 1 has no effect: coord has no service mesh",
        "\"peering\" at line 2, column 1 has no effect: other datacenters are regions, which operator is for",
        "\"intentions\" at line 5, column 3 has no effect: coord has no service mesh",
        "\"sentinel\" at line 8, column 28 has no effect: coord has no Sentinel",
        "\"namespace\" at line 9, column 1 has no effect: coord has no namespaces",
        "\"namespace_prefix\" at line 10, column 1 has no effect: coord has no namespaces",
        "\"partition\" at line 11, column 1 has no effect: coord has no admin partitions",
        "\"partition_prefix\" at line 12, column 1 has no effect: coord has no admin partitions",
        "\"identity\" at line 13, column 1 has no effect: coord has no workload identities",
        "\"identity_prefix\" at line 14, column 1 has no effect: coord has no workload identities",
    };
    struct arena arena = {0};
    struct buffer is = {0};
    struct rules rules;
    struct fault fault = {0};
    cr_assert_eq(rules_parse(slice_text(text), &arena, &rules, &fault), CO_OK, "%s", fault.text);
    print_rules(&rules, &is);
    cr_expect_str_eq(is.data, "service 'web' write; service 'api' read; key 'a' write");
    cr_assert_eq(rules.warning_count, ARRAY_COUNT(warnings));
    for (size_t i = 0; i < ARRAY_COUNT(warnings); i++) cr_expect_str_eq(rules.warnings[i], warnings[i]);
    buffer_free(&is);
    arena_free(&arena);
}

Test(rules, are_bounded) {
    struct arena arena = {0};
    struct buffer text = {0};
    struct rules rules;
    struct fault fault = {0};
    for (size_t i = 0; text.size < RULES_TEXT_MOST - 100; i++)
        buffer_printf(&text, "key \"%zu\" { policy = \"read\" }\n", i);
    while (text.size < RULES_TEXT_MOST) buffer_append_byte(&text, ' ');
    cr_expect_eq(rules_parse(buffer_slice(&text), &arena, &rules, &fault), CO_OK, "%s", fault.text);
    cr_expect_geq(rules.count, 7000);
    cr_expect(slice_is(rules.items[1234].name, "1234"));
    buffer_append_byte(&text, ' ');
    cr_expect_eq(rules_parse(buffer_slice(&text), &arena, &rules, &fault), CO_TOOLARGE);
    cr_expect_str_eq(fault.text, "rules of 262145 bytes: at most 256 KiB are taken");
    buffer_free(&text);
    arena_free(&arena);
}

/* ---- what they add ---- */

static void each_rule(void *data, enum access_resource resource, bool prefix, struct slice name,
                      enum access_level level) {
    struct buffer *out = data;
    if (resource == ACCESS_RESOURCES) return;
    buffer_printf(out, "%s%s '%.*s' %s; ", access_resource_name(resource), prefix ? "_prefix" : "", (int)name.size,
                  name.data, access_level_name(level));
}

/* Seals it, compares its rules in their order, and releases it. */
static void expect_access(struct access *access, const char *wanted) {
    struct buffer is = {0};
    access_seal(access);
    access_each(access, &is, each_rule);
    buffer_append_byte(&is, '\0');
    cr_expect_str_eq(is.data, wanted);
    buffer_free(&is);
    access_release(access);
}

static void add_text(struct access *access, const char *text) {
    struct arena arena = {0};
    struct rules rules;
    struct fault fault = {0};
    cr_assert_eq(rules_parse(slice_text(text), &arena, &rules, &fault), CO_OK, "%s", fault.text);
    rules_add(&rules, access);
    arena_free(&arena);
}

Test(rules, are_added_to_an_access) {
    struct access *access = access_new(ACCESS_DENY);
    add_text(access,
             "key_prefix \"a/\" { policy = \"list\" } operator = \"read\" service \"Web\" { policy = \"write\" }");
    add_text(access, "key_prefix \"a/\" { policy = \"write\" } operator = \"deny\"");
    expect_access(access, "key_prefix 'a/' write; operator '' deny; service 'web' write; ");
}

Test(rules, identities) {
    struct access *access = access_new(ACCESS_DENY);
    rules_add_service_identity(access, SLICE_LITERAL("web"));
    expect_access(
        access,
        "node_prefix '' read; service 'web' write; service 'web-sidecar-proxy' write; service_prefix '' read; ");
    access = access_new(ACCESS_DENY);
    rules_add_node_identity(access, SLICE_LITERAL("n1"));
    expect_access(access, "node 'n1' write; service_prefix '' read; ");
}

/* Management may do everything, and the text that people see says the same. */
Test(rules, management) {
    struct access *one = access_new(ACCESS_DENY), *other = access_new(ACCESS_DENY);
    rules_add_management(one);
    add_text(other, rules_management);
    access_seal(one);
    access_seal(other);
    cr_expect_eq(access_view(one), access_view(other));
    for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++) {
        cr_expect(access_allows_below(one, i, SLICE_LITERAL(""), ACCESS_WRITE), "%s", access_resource_name(i));
        cr_expect(access_allows(one, i, SLICE_LITERAL("any"), ACCESS_WRITE) || !access_resource_named(i));
    }
    access_release(one);
    access_release(other);
}

/* ---- rules of before 1.4 ---- */

Test(rules, translate) {
    static const struct row rows[] = {
        {"", ""},
        {"key \"a\" { policy = \"read\" }", "key_prefix \"a\" { policy = \"read\" }"},
        {"# all\nagent \"\" {policy=\"read\"} event \"\" {policy=\"read\"} key \"\" {policy=\"read\"}\n"
         "node \"\" {policy=\"read\"} query \"\" {policy=\"read\"}\nservice \"\" {policy=\"read\"} # s\n"
         "session \"\" {policy=\"read\"}\nkeyring = \"read\" operator = \"read\" // end",
         "# all\nagent_prefix \"\" {policy=\"read\"} event_prefix \"\" {policy=\"read\"} key_prefix \"\" "
         "{policy=\"read\"}\nnode_prefix \"\" {policy=\"read\"} query_prefix \"\" {policy=\"read\"}\nservice_prefix "
         "\"\" {policy=\"read\"} # s\nsession_prefix \"\" {policy=\"read\"}\nkeyring = \"read\" operator = \"read\" // "
         "end"},
        {"service \"key\" { policy = \"read\" } service \"b\" {} key \"service\" {} \"key\" \"c\" {}",
         "service_prefix \"key\" { policy = \"read\" } service_prefix \"b\" {} key_prefix \"service\" {} "
         "\"key_prefix\" "
         "\"c\" {}"},
        {"key = { a = { policy = \"read\" } }", "key_prefix = { a = { policy = \"read\" } }"},
        {"KEY \"a\" {}", "KEY_prefix \"a\" {}"},
        {"\"k\\x65y\" \"a\" {}", "\"k\\x65y_prefix\" \"a\" {}"},
        {"key_prefix \"b\" {} key \"a\" {} other { key \"x\" {} }",
         "key_prefix \"b\" {} key_prefix \"a\" {} other { key \"x\" {} }"},
        {"key = \"x\" node = [1]", "key = \"x\" node = [1]"},
        {"{\"key\": {\"key\": {\"policy\": \"read\"}}, \"acl\": \"read\", \"node\": []}",
         "{\"key_prefix\": {\"key\": {\"policy\": \"read\"}}, \"acl\": \"read\", \"node_prefix\": []}"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        struct fault fault = {0};
        cr_expect_eq(rules_translate(slice_text(rows[i].text), &out, &fault), CO_OK, "%s", fault.text);
        buffer_append_byte(&out, '\0');
        cr_expect_str_eq(out.data, rows[i].wanted);
        buffer_free(&out);
    }
}

Test(rules, translate_refuses) {
    static const struct row rows[] = {
        {"key \"a\" {", "HCL: \"{\" without its \"}\" at line 1, column 9"},
        {"{\"key\": {", "JSON: unexpected end of data at line 1, column 10"},
        {"{\"key\": {}, \"key_prefix\": {}}",
         "once translated: JSON: the key \"key_prefix\" stands a second time in its object, at line 1, column 20"},
        {"key \"a\" {} key_prefix = [1]",
         "once translated: HCL: this name stands a second time: \"key_prefix\" at line 1, column 19"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        struct fault fault = {0};
        cr_expect_eq(rules_translate(slice_text(rows[i].text), &out, &fault), CO_INVALID, "%s", rows[i].text);
        cr_expect_str_eq(fault.text, rows[i].wanted);
        cr_expect_eq(out.size, 0);
        buffer_free(&out);
    }
}
