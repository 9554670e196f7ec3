#include "tests/fuzz/json_grammar.h"

#include "base/check.h"

#define NAMES    "'n1'|'web'|'db'|'c1'|'serfHealth'|''|'a\\u0000b'|'a\\nb'|'\u00e4'|'a\\`b<'|null|7"
#define NODES    "'n1'|'n1'|'n2'|'N1'|''"
#define WEB      "'web'|'web'|'db'|''"
#define IDS      "'web1'|'web'|'c1'|''|'serfHealth'"
#define PLACES   "'10.0.0.1'|'::1'|'0.0.0.0'|'host'|''"
#define TIMES    "'10s'|'1m0.5s'|'0'|'-1s'|'10'|''|2500000000|-1|0|1.5|1e30|'9999999h'"
#define COUNTS   "0|1|2|3|1000000|1000001|-1|18446744073709551615|'1'"
#define FLAGS    "true|false|null|0|'true'"
#define STATES   "'passing'|'warning'|'critical'|'maintenance'|''"
#define TEXTS    "['a','b']|[]|null|['']|[1]|['a\\u0000']|'a'"
#define MAPS     "{'b':'1','a':'2'}|{}|null|{'':''}|{'a b':''}|{'a':1}|{'consul-x':'y'}"
#define VERBS    "'set'|'cas'|'get'|'delete'|'delete-cas'|'nope'"
#define NUMBERS  "0|1|-1|1.5|9007199254740993|9007199254740992.0|18446744073709551615|-1e300|1e400|'1'"
#define PATTERNS "'^a+$'|'(a+)+b'|'[^a-c]{2,3}?'|'\\\\d\\\\b'|'^(a{9}){9}$'|'.'|'(?=a)'|'['"
#define SIZES    "0|1|2|3|2.0|1000|-1"
#define SCHEMAS  "[@j]|[@j,@j]|[@j,{'$ref':'#/definitions/a'}]|[]|[true,false]"
#define NOTHING  "null|{}|''|[]|false|0"

/* Alternatives stand between bars, ' is ", ` is " within a text, @x an object of kind x. "!": nearly always there. */
static const struct row {
    const char *kinds, *key, *values;
} rows[] = {
    {"!RDS", "Node", NODES},
    {"!R", "Address", PLACES},
    {"R", "ID", "'00000000-0000-4000-8000-000000000001'|''|'x'"},
    {"RD", "Datacenter", "'dc1'|''|'dc2'"},
    {"R", "TaggedAddresses", "{'wan':'10.0.0.1','lan':''}|{}|@t"},
    {"R", "NodeMeta", MAPS},
    {"!R", "Service", "@s|@s|null|{}"},
    {"R", "Check", "@c|{}"},
    {"R", "Checks", "[@c,@c]|[@c]|[]|[null]"},
    {"R", "SkipNodeUpdate", FLAGS},
    {"R", "Lease", "'1ea51000-0000-4000-8000-000000000001'|'00000000-0000-4000-8000-000000000000'|'x'|''|7"},
    {"!G", "TTL", TIMES},
    {"G", "Name", NAMES},
    {"D", "ServiceID", IDS},
    {"D", "CheckID", IDS},
    /* a service, in both spellings */
    {"!s", "Service", WEB},
    {"!A", "Name", WEB},
    {"sA", "ID", IDS},
    {"sA", "Tags", TEXTS},
    {"sA", "Meta", MAPS},
    {"sA", "Address", PLACES},
    {"sA", "Port", "80|0|65535|65536|-1|'80'"},
    {"sA", "TaggedAddresses", "@t|{}|null|{'lan':'x'}"},
    {"sA", "Weights", "@w|{}|null"},
    {"sA", "EnableTagOverride", FLAGS},
    {"sA", "Kind", "''|'x'"},
    {"sA", "Proxy", NOTHING},
    {"A", "Connect", NOTHING},
    {"A", "Namespace", "''|'default'|'x'"},
    {"A", "Check", "@k|{}|{'Interval':'','HTTP':''}"},
    {"A", "Checks", "[@k,@k]|[@k,{}]|null"},
    {"w", "Passing", COUNTS},
    {"w", "Warning", COUNTS},
    {"t", "lan", "@a|@a|{}"},
    {"t", "wan_ipv4", "@a"},
    {"!a", "Address", PLACES},
    {"!a", "Port", "1|0|65536"},
    /* a check of the catalog */
    {"c", "Node", NODES},
    {"!c", "CheckID", IDS},
    {"cKk", "Name", NAMES},
    {"c", "ServiceID", IDS},
    {"cKk", "Status", STATES},
    {"cKk", "Notes", NAMES},
    {"c", "Output", NAMES},
    {"c", "Type", "'http'|''"},
    {"c", "Definition", "{'TCP':'x:1','a':[1e5]}|{}|null"},
    /* and of an agent */
    {"!K", "Name", "'c'|'c'|'a\\nb'"},
    {"Kk", "CheckID", IDS},
    {"Kk", "id", IDS},
    {"Kk", "service_id", IDS},
    {"!Kk", "HTTP", "'http://x/'|'http://x/'|''"},
    {"Kk", "TCP", "'x:1'|''"},
    {"Kk", "UDP", "'x:1'|''"},
    {"Kk", "GRPC", "'x:1/s'|''"},
    {"Kk", "grpc_use_tls", FLAGS},
    {"Kk", "H2PING", "'x:1'|''"},
    {"Kk", "H2PingUseTLS", FLAGS},
    {"Kk", "Args", "['a','','-b']|" TEXTS},
    {"Kk", "script_args", TEXTS},
    {"Kk", "AliasNode", "'n2'|''"},
    {"Kk", "alias_service", "'web'|''"},
    {"Kk", "OSService", "'a@b.service'|'-x'|'a b'|''"},
    {"!Kk", "Interval", "'10s'|'10s'|" TIMES},
    {"Kk", "TTL", TIMES},
    {"Kk", "Timeout", TIMES},
    {"Kk", "DeregisterCriticalServiceAfter", TIMES},
    {"Kk", "Header", "{'A':['b','c'],'D':[]}|{'A':['b'],'a':['c']}|{}|{'A':'b'}|{'A':[1]}|null"},
    {"Kk", "Method", "'POST'|''"},
    {"Kk", "Body", NAMES},
    {"Kk", "TLSServerName", "'x'"},
    {"Kk", "TLSSkipVerify", FLAGS},
    {"Kk", "DisableRedirects", FLAGS},
    {"Kk", "success_before_passing", COUNTS},
    {"Kk", "FailuresBeforeWarning", COUNTS},
    {"Kk", "FailuresBeforeCritical", COUNTS},
    {"Kk", "OutputMaxSize", COUNTS},
    /* a session */
    {"S", "Name", NAMES},
    {"S", "TTL", TIMES},
    {"S", "LockDelay", TIMES},
    {"S", "Behavior", "'delete'|'release'|''|'x'"},
    {"S", "NodeChecks", "['serfHealth']|['c1','serfHealth']|[]|null|" TEXTS},
    {"S", "Checks", "['serfHealth']|['c1']|[]|null"},
    {"S", "ServiceChecks", "[{'ID':'c1'}]|[{'ID':'c1','Namespace':''},{}]|[]|null|['c1']"},
    /* a transaction */
    {"!I", "If", "[@x]|[@x,@x]|[]|null|[7]"},
    {"!I", "Then", "[@o]|[@o,@o]|[]|null|7"},
    {"I", "Else", "[@o]|[]|[null]"},
    {"!o", "KV", "@v|@v|@v|null|7"},
    {"o", "Node", "@n|{}"},
    {"o", "Service", "@p|{}"},
    {"o", "Check", "@q|{}"},
    {"o", "Session", "{'Verb':'delete','Session':{'ID':'5e551000-0000-4000-8000-000000000001'}}|{'Verb':'x'}|{}"},
    {"o", "Fence", "@f|{}"},
    {"!v", "Verb", VERBS "|'lock'|'unlock'|'get-tree'|'check-index'|'check-session'|'check-not-exists'|'delete-tree'"},
    {"!npq", "Verb", VERBS},
    {"!vy", "Key", "'a'|'a'|'lock'|'leased'|'a`b'|''|" NAMES},
    {"vy", "Value", "'MQ=='|''|'*'|'MQ'|null|7"},
    {"v", "Flags", COUNTS},
    {"v", "Index", COUNTS},
    {"vy", "Session", "'5e551000-0000-4000-8000-000000000001'|'x'|''|null"},
    {"vy", "Lease", "'1ea51000-0000-4000-8000-000000000001'|'x'|''"},
    {"v", "Fence", "'l'|''|7"},
    {"vf", "Token", COUNTS},
    {"!f", "Resource", NAMES},
    {"f", "Lock", "'l'|''"},
    {"!n", "Node", "{'Node':'n1','Address':'10.0.0.1','ModifyIndex':1}|{'ID':'x'}|@R|{}|null"},
    {"!p", "Node", NODES},
    {"!p", "Service", "@s|{'ID':'web1','ModifyIndex':2}|{}|null"},
    {"!q", "Check", "@c|{'Node':'n1','CheckID':'c1','ModifyIndex':3}|{}|null"},
    {"!x", "KV", "@y|@y|{}|7"},
    {"x", "Node", "{'Node':'n1','Exists':true}|{'Exists':true}"},
    {"x", "Service", "{'Node':'n1','ID':'web1','ModifyIndex':1,'Op':'>'}|{}"},
    {"x", "Lock", "{'Name':'l','FencingToken':7}|{'Name':''}"},
    {"x", "Election", "{'Name':'e','Term':7}"},
    {"y", "Exists", FLAGS},
    {"y", "ModifyIndex", COUNTS},
    {"y", "LockIndex", COUNTS},
    {"y", "Op", "'='|'!='|'<'|'>'|'~'|7"},
    /* a JSON Schema; members of documents are called a, b and c */
    {"!Jj", "type", "'object'|'array'|'integer'|'number'|'string'|['null','boolean']|'x'"},
    {"Jj", "enum", "[1,2.0,'a',null]|[[1],{'a':1.0}]|[]"},
    {"Jj", "const", "1.0|'a'|null|{'a':[1],'b':2}|[[]]"},
    {"Jj", "minimum", NUMBERS},
    {"Jj", "maximum", NUMBERS},
    {"Jj", "exclusiveMinimum", NUMBERS},
    {"Jj", "exclusiveMaximum", NUMBERS},
    {"Jj", "multipleOf", "2|0.1|1e-300|3e300|0|-1|18446744073709551615"},
    {"Jj", "minLength", SIZES},
    {"Jj", "maxLength", SIZES},
    {"Jj", "minItems", SIZES},
    {"Jj", "maxItems", SIZES},
    {"Jj", "uniqueItems", "true|true|false|0"},
    {"Jj", "pattern", PATTERNS},
    {"Jj", "required", "['a']|['a','b']|[]|[1]"},
    {"Jj", "$ref", "'#'|'#/definitions/a'|'#/definitions/b/items'|'#/$defs/a~1b%25'|'#/x'|'x'"},
    {"!J", "$schema", "'http://json-schema.org/draft-07/schema#'"},
    {"J", "$id", "'http://x/'"},
    {"Jj", "title", "'t'"},
    {"J", "definitions", "{'a':@j,'b':@j}|{'a':true,'b':{'items':{'$ref':'#/definitions/a'}}}|{}"},
    {"J", "$defs", "{'a/b%':@j}|{}"},
    {"J", "properties", "{'a':@j,'b':@j}|{'a':@j,'b':false,'c':true}|{'a':{'$ref':'#'}}"},
    {"J", "patternProperties", "{'a':@j,'^[bc]$':@j}|{'':false}"},
    {"J", "additionalProperties", "@j|false|{'$ref':'#'}"},
    {"J", "items", "@j|[@j,@j]|{'$ref':'#'}|false"},
    {"J", "allOf", SCHEMAS},
    {"J", "anyOf", SCHEMAS},
    {"J", "oneOf", SCHEMAS},
    {"J", "not", "@j|@j|{'not':@j}|true"},
};

static void put_value(struct buffer *out, const char *values, struct rng *rng) {
    unsigned count = 1;
    for (const char *at = values; *at; at++) count += *at == '|';
    const char *at = values;
    for (uint64_t skip = rng_below(rng, count); skip; at++) skip -= *at == '|';
    for (; *at && *at != '|'; at++) {
        if (*at == '@') {
            json_grammar_object(out, *++at, rng);
        } else {
            buffer_append_byte(out, *at == '\'' || *at == '`' ? '"' : *at);
        }
    }
}

static void put_member(struct buffer *out, const struct row *row, struct rng *rng) {
    buffer_printf(out, "\"%s\":", row->key);
    put_value(out, row->values, rng);
}

void json_grammar_object(struct buffer *out, char kind, struct rng *rng) {
    uint64_t rare = rng_between(rng, 2, 12); /* some objects are full, most have a few members */
    const char *comma = "";
    if (kind == 'k' && rng_below(rng, 2)) {
        buffer_append_text(out, "{\"TTL\":\"10s\"}");
        return;
    }
    if (kind == 'T') {
        buffer_append_byte(out, '[');
        for (uint64_t more = rng_below(rng, 4); more; more--) {
            json_grammar_object(out, 'o', rng);
            if (more > 1) buffer_append_byte(out, ',');
        }
        buffer_append_byte(out, ']');
        return;
    }
    buffer_append_byte(out, '{');
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (!strchr(rows[i].kinds, kind)) continue;
        if (rows[i].kinds[0] == '!' ? rng_below(rng, 10) == 0 : rng_below(rng, rare) != 0) continue;
        buffer_append_text(out, comma);
        put_member(out, &rows[i], rng);
        comma = ",";
    }
    buffer_append_byte(out, '}');
}

static bool is_keyword(const struct row *row) { return strpbrk(row->kinds, "Jj") != NULL; }

static void put_one(struct buffer *out, bool keyword, struct rng *rng) {
    const struct row *row;
    do { row = &rows[rng_below(rng, ARRAY_COUNT(rows))]; } while (is_keyword(row) != keyword);
    put_member(out, row, rng);
}

void json_grammar_member(struct buffer *out, struct rng *rng) { put_one(out, false, rng); }

void json_grammar_keyword(struct buffer *out, struct rng *rng) { put_one(out, true, rng); }
