#include "catalog_help.h"

#include <stdio.h>
#include <stdlib.h>

void help_node(struct rpc *rpc, const char *name, const char *address, const char *const *meta) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Pair pairs[8], *items[8];
    char keys[8][64];
    node.name = (char *)name;
    node.address = (char *)address;
    node.datacenter = "dc1";
    node.meta = items;
    for (; meta && meta[node.n_meta]; node.n_meta++) {
        size_t i = node.n_meta;
        const char *sign = strchr(meta[i], '=');
        snprintf(keys[i], sizeof(keys[i]), "%.*s", (int)(sign - meta[i]), meta[i]);
        pb__pair__init(&pairs[i]);
        pairs[i].key = keys[i];
        pairs[i].value = (char *)sign + 1;
        items[i] = &pairs[i];
    }
    command.node = &node;
    fake_rpc_apply(rpc, CATALOG_REGISTER, &command.base);
}

static void check_register(struct rpc *rpc, const char *node_name, const char *id, const char *service_id,
                           Pb__Status status) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[1] = {&check};
    node.name = (char *)node_name;
    check.node = (char *)node_name;
    check.check_id = (char *)id;
    check.name = (char *)id;
    check.service_id = (char *)service_id;
    check.status = status;
    command.node = &node;
    command.skip_node_update = true;
    command.checks = checks;
    command.n_checks = 1;
    fake_rpc_apply(rpc, CATALOG_REGISTER, &command.base);
}

void help_service(struct rpc *rpc, struct help_service given) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    node.name = (char *)given.node;
    service.node = (char *)given.node;
    service.id = (char *)given.id;
    service.name = (char *)given.name;
    service.address = given.address ? (char *)given.address : "";
    service.port = given.port;
    service.tags = (char **)given.tags;
    while (service.n_tags < 4 && given.tags[service.n_tags]) service.n_tags++;
    bool weights = given.passing || given.warning;
    service.weight_passing = weights ? given.passing : 1;
    service.weight_warning = weights ? given.warning : 1;
    command.node = &node;
    command.skip_node_update = true;
    command.service = &service;
    fake_rpc_apply(rpc, CATALOG_REGISTER, &command.base);
    char check[80];
    snprintf(check, sizeof(check), "check-of-%s", given.id);
    check_register(rpc, given.node, check, given.id, given.status);
}

void help_node_check(struct rpc *rpc, const char *node, Pb__Status status) {
    check_register(rpc, node, "serfHealth", "", status);
}

void help_drop_service(struct rpc *rpc, const char *node, const char *id) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)node;
    command.service_id = (char *)id;
    fake_rpc_apply(rpc, CATALOG_DEREGISTER, &command.base);
}

void help_drop_node(struct rpc *rpc, const char *node) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)node;
    fake_rpc_apply(rpc, CATALOG_DEREGISTER, &command.base);
}
