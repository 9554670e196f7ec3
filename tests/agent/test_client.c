/* The URL that an address stands for. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "agent/client.h"
#include "base/check.h"

static const char *url_of(const char *address) {
    static char text[200];
    struct buffer url = {0};
    client_url(address, "/v1/kv/x", &url);
    cr_assert_lt(url.size, sizeof text);
    memcpy(text, url.data, url.size);
    text[url.size] = '\0';
    buffer_free(&url);
    return text;
}

Test(client, a_host_without_a_port_has_that_of_the_api) {
    static const struct {
        const char *address, *url;
    } rows[] = {
        {"web1", "http://web1:8500/v1/kv/x"},
        {"web1:", "http://web1:8500/v1/kv/x"},
        {"web1:80", "http://web1:80/v1/kv/x"},
        {"10.0.0.1", "http://10.0.0.1:8500/v1/kv/x"},
        {"::1", "http://[::1]:8500/v1/kv/x"},
        {"[::1]", "http://[::1]:8500/v1/kv/x"},
        {"[::1]:8501", "http://[::1]:8501/v1/kv/x"},
        {"web1/prefix", "http://web1:8500/prefix/v1/kv/x"},
        {"web1/", "http://web1:8500/v1/kv/x"},
        /* URLs say what they say. */
        {"http://web1", "http://web1/v1/kv/x"},
        {"http://web1:8500", "http://web1:8500/v1/kv/x"},
        {"https://web1", "https://web1/v1/kv/x"},
        {"unix:///run/coord.sock", "http://localhost/v1/kv/x"},
    };
    unsetenv("CONSUL_HTTP_SSL");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) cr_expect_str_eq(url_of(rows[i].address), rows[i].url);
    setenv("CONSUL_HTTP_SSL", "true", 1);
    cr_expect_str_eq(url_of("web1"), "https://web1:8500/v1/kv/x");
    cr_expect_str_eq(url_of("http://web1:8501"), "https://web1:8501/v1/kv/x");
}
