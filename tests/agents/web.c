#include "web.h"

#include <curl/curl.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/memory.h"

struct web {
    CURL *curl;
    const char *address;
    struct buffer body;
    uint64_t index;
    const _Atomic bool *stop;
};

static size_t on_body(char *data, size_t size, size_t count, void *context) {
    struct web *web = context;
    buffer_append(&web->body, data, size * count);
    return size * count;
}

static size_t on_header(char *data, size_t size, size_t count, void *context) {
    static const char name[] = "X-Consul-Index:";
    struct web *web = context;
    if (size * count > sizeof name && strncasecmp(data, name, sizeof name - 1) == 0)
        web->index = strtoull(data + sizeof name - 1, NULL, 10);
    return size * count;
}

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    struct web *web = context;
    (void)a, (void)b, (void)c, (void)d;
    return web->stop && atomic_load(web->stop);
}

struct web *web_new(const char *address) {
    struct web *web = mem_zalloc(sizeof *web);
    web->address = address;
    CHECK((web->curl = curl_easy_init()) != NULL);
    curl_easy_setopt(web->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(web->curl, CURLOPT_WRITEDATA, web);
    curl_easy_setopt(web->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(web->curl, CURLOPT_HEADERDATA, web);
    curl_easy_setopt(web->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(web->curl, CURLOPT_XFERINFODATA, web);
    curl_easy_setopt(web->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(web->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(web->curl, CURLOPT_TIMEOUT_MS, 60000L);
    return web;
}

void web_free(struct web *web) {
    curl_easy_cleanup(web->curl);
    buffer_free(&web->body);
    free(web);
}

struct json_object *web_get(struct web *web, const char *path, uint64_t *index, const _Atomic bool *stop) {
    struct buffer url = {0};
    buffer_printf(&url, "http://%s%s", web->address, path);
    buffer_append_byte(&url, '\0');
    curl_easy_setopt(web->curl, CURLOPT_URL, url.data);
    buffer_reset(&web->body);
    web->stop = stop, web->index = 0;
    CURLcode code = curl_easy_perform(web->curl);
    long status = 0;
    curl_easy_getinfo(web->curl, CURLINFO_RESPONSE_CODE, &status);
    buffer_free(&url);
    if (index) *index = web->index;
    struct fault fault = {0};
    return code == CURLE_OK && status == 200 ? json_parse(buffer_slice(&web->body), &fault) : NULL;
}
