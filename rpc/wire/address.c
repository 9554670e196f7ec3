#include "rpc/wire/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static bool is_port(const char *text) {
    size_t size = strlen(text), digits = strspn(text, "0123456789");
    unsigned long port = size > 0 && digits == size ? strtoul(text, NULL, 10) : 0;
    return port >= 1 && port <= UINT16_MAX;
}

bool address_complete(const char *text, uint16_t port, char out[ADDRESS_MAX]) {
    const char *first = strchr(text, ':'), *last = strrchr(text, ':');
    bool v6 = first && first != last && text[0] != '[';
    bool has_port = !v6 && last && !(text[0] == '[' && text[strlen(text) - 1] == ']');
    int size = v6         ? snprintf(out, ADDRESS_MAX, "[%s]:%u", text, port)
               : has_port ? snprintf(out, ADDRESS_MAX, "%s", text)
                          : snprintf(out, ADDRESS_MAX, "%s:%u", text, port);
    char host[ADDRESS_MAX], number[8];
    return size < ADDRESS_MAX && address_split(out, host, number) && is_port(number);
}

/* The programs that read such texts have libraries that coord does not have. */
const char *address_refused(const char *text) {
    char out[ADDRESS_MAX];
    if (strstr(text, "provider="))
        return "asks for cloud auto-join, which is not built in: name the servers, by address or by a DNS name of all "
               "of "
               "them (HOST or HOST:8300; in Kubernetes that of a headless service)";
    if (strstr(text, "{{")) return "is a go-sockaddr template, which is not supported: write the address itself";
    if (strstr(text, "://")) return "is a URL: write HOST or HOST:8300";
    if (text[strcspn(text, " \t\r\n=,;\"'")]) return "is not an address: write HOST or HOST:8300, one in each text";
    return address_complete(text, UINT16_MAX, out) ? NULL : "is not an address";
}

bool address_split(const char *name, char host[ADDRESS_MAX], char port[8]) {
    const char *colon = strrchr(name, ':');
    size_t size = colon ? (size_t)(colon - name) : 0;
    if (size == 0 || size >= ADDRESS_MAX || strlen(colon + 1) >= 8) return false;
    bool bracket = name[0] == '[' && name[size - 1] == ']';
    snprintf(host, ADDRESS_MAX, "%.*s", (int)(bracket ? size - 2 : size), bracket ? name + 1 : name);
    snprintf(port, 8, "%s", colon + 1);
    return true;
}

bool address_ip(const char *host, const char *port, struct sockaddr_storage *out) {
    memset(out, 0, sizeof *out);
    return uv_ip4_addr(host, atoi(port), (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(host, atoi(port), (struct sockaddr_in6 *)out) == 0;
}

unsigned address_count(const struct addrinfo *found) {
    unsigned count = 0;
    for (; found; found = found->ai_next) count++;
    return count;
}

const struct sockaddr *address_at(const struct addrinfo *found, unsigned at) {
    for (unsigned i = 0; i < at; i++) found = found->ai_next;
    return found->ai_addr;
}

unsigned address_turn_next(struct address_turn *turn, unsigned count) {
    if (turn->next >= count) turn->next = 0;
    unsigned at = turn->next++;
    turn->left = count - turn->next;
    return at;
}

const struct sockaddr *address_next(struct address_turn *turn, const struct addrinfo *found) {
    return address_at(found, address_turn_next(turn, address_count(found)));
}

bool address_failed(struct address_turn *turn) {
    bool left = turn->left > 0;
    turn->left = 0;
    return left;
}
