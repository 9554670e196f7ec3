/* The events that a module gets from the catalog. */
#include <criterion/criterion.h>

#include "catalog_specs.h"

#define UUID(last) "22222222-2222-2222-2222-22222222222" last

static struct buffer told;

static void listen(struct machine_tx *tx, const struct machine_event *event) {
    (void)tx;
    static const char *const names[] = {"node-", "service-", "check-", "critical"};
    buffer_printf(&told, "%s %.*s %.*s;", names[event->type], (int)event->node.size, event->node.data,
                  (int)event->id.size, event->id.data);
}

static const struct module listener = {.name = "listener", .on_event = listen};

static void expect_told(const char *text) {
    buffer_append_byte(&told, '\0');
    cr_assert_str_eq(told.data, text);
    buffer_reset(&told);
}

Test(catalog_events, events_are_told_once_each_and_only_on_success) {
    struct fixture f;
    fixture_open_with(&f, &listener);
    fixture_register(&f, "node=n1 id=" UUID("1") " service=a:web:1 check=ac:passing:a check=nc:critical:");
    expect_told("critical n1 nc;");
    fixture_register(&f, "node=n1 check=nc:critical: output=other");
    expect_told("");
    fixture_register(&f, "node=n1 id=" UUID("1") " check=ac:critical:a");
    expect_told("critical n1 ac;");
    fixture_deregister(&f, "n1", "", "nc");
    expect_told("check- n1 nc;");
    fixture_deregister(&f, "n1", "a", "");
    expect_told("check- n1 ac;service- n1 a;");
    fixture_register(&f, "node=n1 id=" UUID("1") " service=b:web:1 check=bc:passing:b");
    fixture_register(&f, "node=n2 id=" UUID("1"));
    expect_told("check- n1 bc;service- n1 b;node- n1 ;");
    struct arena arena = {0};
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    Pb__RegisterCommand *registers[2] = {fixture_register_command(&arena, "node=n2 check=x:critical:"),
                                         fixture_register_command(&arena, "node=n2 check=y:critical:none")};
    batch.registers = registers;
    batch.n_registers = 2;
    cr_assert_eq(fixture_apply(&f, CATALOG_BATCH, &batch.base).error, CO_INVALID);
    expect_told("");
    arena_free(&arena);
    buffer_free(&told);
    fixture_close(&f);
}
