#include "agent_world.h"

#include <criterion/criterion.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

static void on_closed(void *data) {
    struct agent *agent = data;
    uv_close((uv_handle_t *)&agent->stop, NULL);
}

static void on_stop(uv_async_t *stop) {
    struct agent *agent = stop->data;
    local_stop(agent->local, on_closed, agent);
}

static void *agent_main(void *data) {
    struct agent *agent = data;
    Pb__Node node = PB__NODE__INIT;
    struct fault fault = {0};
    node.name = (char *)"n1";
    node.address = (char *)"127.0.0.1";
    struct local_config config = {.node = "n1",
                                  .node_id = "",
                                  .address = "127.0.0.1",
                                  .datacenter = "dc1",
                                  .node_record = &node,
                                  .is_server = true,
                                  .server_port = 8300};
    uv_loop_init(&agent->loop);
    agent->stop.data = agent;
    uv_async_init(&agent->loop, &agent->stop, on_stop);
    CHECK(local_start(&agent->loop, &config, world_rpc(agent->world), &agent->local, &fault) == CO_OK);
    uv_barrier_wait(&agent->ready);
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&agent->loop) == 0);
    return NULL;
}

static int set_token(void *data, enum http_agent_token token, struct slice secret, struct fault *fault) {
    struct agent *agent = data;
    (void)fault;
    agent->set.token = token;
    snprintf(agent->set.secret, sizeof agent->set.secret, "%.*s", (int)secret.size, secret.data);
    return CO_OK;
}

struct agent *agent_new(void) {
    return agent_new_with(NULL);
}

struct agent *agent_new_with(const struct rpc_access_control *control) {
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct agent *agent = mem_zalloc(sizeof *agent);
    struct fault fault = {0};
    log_level_now = LOG_ERROR;
    agent->world = world_start(NULL);
    if (control) rpc_access_control_set(world_rpc(agent->world), control);
    uv_barrier_init(&agent->ready, 2);
    CHECK(pthread_create(&agent->thread, NULL, agent_main, agent) == 0);
    uv_barrier_wait(&agent->ready);
    struct http_config config = {.addresses = addresses, .workers = 1};
    struct http_env env = {.rpc = world_rpc(agent->world),
                           .local = agent->local,
                           .datacenter = "dc1",
                           .node_name = "n1",
                           .node_id = "",
                           .version = "1.2.3",
                           .consul_version = "1.8.7",
                           .address = "127.0.0.1",
                           .is_server = true,
                           .set_token = set_token,
                           .set_token_data = agent,
                           .kv_value_max = 512 * 1024};
    cr_assert_eq(http_start(&config, &env, &agent->http, &fault), CO_OK, "%s", fault.text);
    return agent;
}

void agent_free(struct agent *agent) {
    http_stop(agent->http);
    uv_async_send(&agent->stop);
    pthread_join(agent->thread, NULL);
    uv_barrier_destroy(&agent->ready);
    world_stop(agent->world);
    free(agent);
}

static size_t on_body(char *data, size_t one, size_t size, void *user) {
    (void)one;
    buffer_append(user, data, size);
    return size;
}

long agent_ask(struct agent *agent, const char *token, const char *method, const char *target, const char *body,
               struct buffer *answer, struct buffer *head) {
    struct buffer url = {0}, line = {0};
    struct curl_slist *lines = NULL;
    long status = 0;
    CURL *easy = curl_easy_init();
    buffer_printf(&url, "http://127.0.0.1:%u%s%c", http_port(agent->http), target, '\0');
    buffer_reset(answer);
    buffer_reset(head);
    curl_easy_setopt(easy, CURLOPT_URL, url.data);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    buffer_printf(&line, "X-Consul-Token: %s%c", token ? token : "", '\0');
    if (token) lines = curl_slist_append(NULL, line.data);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
    if (body) curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 15L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, head);
    CURLcode code = curl_easy_perform(easy);
    cr_assert_eq(code, CURLE_OK, "%s %s: %s", method, target, curl_easy_strerror(code));
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);
    buffer_append_byte(answer, '\0');
    buffer_append_byte(head, '\0');
    curl_slist_free_all(lines);
    buffer_free(&url), buffer_free(&line);
    return status;
}

void agent_talk(struct agent *agent, const struct exchange *rows, size_t count) {
    struct buffer answer = {0}, head = {0};
    for (size_t i = 0; i < count; i++) {
        const struct exchange *row = &rows[i];
        long status = agent_ask(agent, NULL, row->method, row->target, row->body, &answer, &head);
        cr_expect(status == row->status, "%s %s: %ld: %s", row->method, row->target, status, answer.data);
        if (row->answer) {
            cr_expect_str_eq(answer.data, row->answer, "%s %s:\n%s\nwanted\n%s", row->method, row->target, answer.data,
                             row->answer);
        }
    }
    buffer_free(&answer);
    buffer_free(&head);
}
